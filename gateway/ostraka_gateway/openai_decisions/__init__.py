"""OpenAI's Decisions API over the same prompts: its request, its answers, its errors."""
