"""Hypothesis strategies for the questions of a request."""

from hypothesis import strategies as st

WORDS = st.text(max_size=30)
QUESTION = st.one_of(
    st.builds(lambda text: {"type": "noul", "instructions": text}, WORDS),
    st.builds(
        lambda text, names: {"type": "choice", "instructions": text, "criteria": dict.fromkeys(names)},
        WORDS,
        st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True),
    ),
    st.builds(
        lambda text, levels: {"type": "score", "instructions": text, "criteria": levels},
        WORDS,
        st.lists(st.text(max_size=6), min_size=1, max_size=4),
    ),
)
QUESTIONS = st.dictionaries(st.text(min_size=1, max_size=3).filter(str.strip), QUESTION, min_size=1, max_size=4)
