import socket
import threading

from ostraka.accept_queue import await_empty, count_waiting


def test_who_waits_to_be_accepted_is_counted():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        assert count_waiting(listener) == 2
        listener.accept()[0].close()
        assert count_waiting(listener) == 1
        for client in clients:
            client.close()


def test_it_waits_until_all_are_accepted():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):

        def accept():
            taken, _ = listener.accept()
            taken.close()

        taken = threading.Thread(target=accept)
        taken.start()
        await_empty(listener)
        assert count_waiting(listener) == 0
        taken.join()


def test_whom_nobody_accepts_is_not_waited_for_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        await_empty(listener)
        assert count_waiting(listener) == 1


def test_what_is_no_tcp_socket_has_nobody_waiting():
    left, right = socket.socketpair()
    with left, right:
        assert count_waiting(left) == 0
