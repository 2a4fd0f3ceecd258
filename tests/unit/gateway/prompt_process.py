"""A server that leaves as soon as it is told to: uvicorn's own loop looks ten times a second."""

from ostraka_gateway.http_process import HttpProcess
from tests.waiting import until


class PromptProcess(HttpProcess):
    async def main_loop(self) -> None:
        await until(lambda: self.should_exit, deadline_s=60)
