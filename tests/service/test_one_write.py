"""What uvicorn writes in one turn of the loop goes out as one piece, in order, also
when the connection is closed right after.
"""

from __future__ import annotations

import asyncio

from memagent.service.one_write import OneWrite


class Server(asyncio.Protocol):
    """Answers every piece that comes with two writes; closes after `bye`."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        inner = transport
        assert isinstance(inner, asyncio.Transport)
        write = inner.write

        def counted(data: bytes) -> None:
            self.pieces.append(bytes(data))
            write(data)

        inner.write = counted  # type: ignore[method-assign]
        self.transport = OneWrite(inner, asyncio.get_running_loop())

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"head ")
        self.transport.write(b"of " + data)
        if data == b"bye":
            self.transport.close()


async def _talk() -> tuple[list[bytes], bytes]:
    pieces: list[bytes] = []
    server = await asyncio.get_running_loop().create_server(lambda: Server(pieces), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"one")
        first = await reader.readexactly(len(b"head of one"))
        writer.write(b"bye")
        rest = await reader.read()
        writer.close()
    return pieces, first + rest


def test_one_piece_for_a_turn_and_all_of_it_before_the_end() -> None:
    pieces, heard = asyncio.run(_talk())
    assert pieces == [b"head of one", b"head of bye"]
    assert heard == b"head of onehead of bye"


def test_everything_else_is_the_inner_transports() -> None:
    async def asked() -> object:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(
                asyncio.Protocol, *server.sockets[0].getsockname()
            )
            wrapped = OneWrite(transport, loop)
            name = wrapped.get_extra_info("peername")
            wrapped.close()
            wrapped.write(b"too late")
            await asyncio.sleep(0.01)
            return name

    assert asyncio.run(asked()) is not None
