"""What each kind of setting reads, and what it refuses."""

from __future__ import annotations

import pytest

from noonbell.errors import SettingsError
from noonbell.settings import CallbackSettings, ExecutorSettings, JobSettings, ServerSettings, Settings, kinds
from noonbell.settings.loading import url_from_dsn


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (10, 10.0),
        (10.0, 10.0),
        ("10", 10.0),
        ("10s", 10.0),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1.5s", 1.5),
    ],
)
def test_a_duration_is_read(given, seconds):
    assert kinds.duration(0).read(given) == seconds


@pytest.mark.parametrize("given", ["", "s", "10x", "-1", -1, True, None, [], "nan", "inf", "1s junk", "1e999"])
def test_no_duration_is_refused(given):
    with pytest.raises((ValueError, TypeError)):
        kinds.duration(0).read(given)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 90.0, 0.001])
def test_a_duration_that_was_written_is_read_again(seconds):
    kind = kinds.duration(0)
    assert kind.read(kind.write(seconds)) == seconds


@pytest.mark.parametrize(("given", "read"), [(True, True), ("yes", True), ("0", False), ("OFF", False)])
def test_a_boolean_is_read(given, read):
    assert kinds.boolean.read(given) is read


@pytest.mark.parametrize("given", [1, 0, "maybe", None])
def test_no_boolean_is_refused(given):
    with pytest.raises(ValueError):
        kinds.boolean.read(given)


@pytest.mark.parametrize(("given", "read"), [("auto", None), (True, True), ("false", False), (None, None)])
def test_a_switch_has_three_ways(given, read):
    assert kinds.switch.read(given) is read


@pytest.mark.parametrize("given", [True, 1.5, "1.5", "", 70_000, -1, None])
def test_no_port_is_refused(given):
    with pytest.raises(ValueError):
        kinds.number(0, 65_535).read(given)


@pytest.mark.parametrize("given", [{"Host": "x"}, {"A b": "x"}, {"X": "a\nb"}, {"X": True}, {"X": None}, ["X"], "x"])
def test_headers_that_the_client_owns_or_that_break_a_line_are_refused(given):
    with pytest.raises(ValueError):
        kinds.headers.read(given)


@pytest.mark.parametrize(
    "given", ["sqlite:///x.db", "sqlite:////var/x.db", "postgresql://h/d", "mysql://u:p@h:3306/d", "memory://"]
)
def test_a_store_address_is_read(given):
    assert kinds.store_address.read(given) == given


@pytest.mark.parametrize("given", ["x.db", "sqlite://", "postgresql://h", "postgresql://h:99999/d", "oracle://h/d", ""])
def test_no_store_address_is_refused(given):
    with pytest.raises(ValueError):
        kinds.store_address.read(given)


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("user:pass@tcp(127.0.0.1:3306)/cronjob?parseTime=True", "mysql://user:pass@127.0.0.1:3306/cronjob"),
        ("root@tcp(db)/cron", "mysql://root@db:3306/cron"),
        ("u:p@tcp([::1]:3307)/d", "mysql://u:p@[::1]:3307/d"),
        ("tcp(db:3306)/d", "mysql://root@db:3306/d"),
        ("u@tcp(db:3306)/d?charset=utf8mb4&tls=true", "mysql://u@db:3306/d?ssl-mode=VERIFY_IDENTITY"),
        ("u@tcp(db:3306)/d?tls=false", "mysql://u@db:3306/d"),
    ],
)
def test_a_dsn_becomes_an_address(dsn, url):
    assert url_from_dsn(dsn) == url


def test_settings_made_by_hand_are_checked_too():
    with pytest.raises(SettingsError, match=r"server\.port: is -1; expected a whole number"):
        ServerSettings(port=-1)
    with pytest.raises(SettingsError, match=r"jobs\.worker_concurrency"):
        JobSettings(enabled=True, worker_concurrency=0)


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Settings().server.port = 1


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (Settings(), "http://127.0.0.1:8080/api/v1/callbacks"),
        (Settings(server=ServerSettings(host="0.0.0.0", port=1)), "http://127.0.0.1:1/api/v1/callbacks"),
        (Settings(server=ServerSettings(host="::", port=1)), "http://[::1]:1/api/v1/callbacks"),
        (Settings(callback=CallbackSettings(base_url="https://x.example/")), "https://x.example/api/v1/callbacks"),
        (Settings(callback=CallbackSettings(base_url="https://x.example/cb")), "https://x.example/cb"),
    ],
)
def test_where_callbacks_come_back_to(settings, url):
    assert settings.callback_url() == url


def test_the_port_that_is_really_listened_on_counts():
    assert Settings().callback_url(port=5).startswith("http://127.0.0.1:5/")


def test_networks_are_normalised():
    assert ExecutorSettings(deny_networks=["10.1.2.3/8", "::1"]).deny_networks == ("10.0.0.0/8", "::1/128")


def test_host_names_are_read_from_a_list_or_a_variable():
    assert ServerSettings(allowed_hosts=["Cron.Example.com.", "noonbell"]).allowed_hosts == (
        "cron.example.com",
        "noonbell",
    )
    assert kinds.host_names.read("noonbell, cron_1.internal") == ("noonbell", "cron_1.internal")
    assert kinds.host_names.read(["*"]) == ("*",)
    assert kinds.host_names.read("") == ()


@pytest.mark.parametrize(
    "given", [["https://x.example"], ["x.example:80"], ["*.example"], ["a b"], [""], ["-x"], ["x..y"], [1], {"a": 1}]
)
def test_what_is_no_host_name_is_refused(given):
    with pytest.raises(ValueError):
        kinds.host_names.read(given)


def test_proxies_are_addresses_or_networks():
    assert ServerSettings(trusted_proxies="127.0.0.1,10.0.0.0/8").trusted_proxies == ("127.0.0.1/32", "10.0.0.0/8")
    with pytest.raises(SettingsError, match=r"server\.trusted_proxies"):
        ServerSettings(trusted_proxies=["nginx"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7", ("10.0.0.7", None)),
        ("10.0.0.7:7946", ("10.0.0.7", 7946)),
        ("fd00::7", ("fd00::7", None)),
        ("[fd00::7]", ("fd00::7", None)),
        ("[fd00::7]:7946", ("fd00::7", 7946)),
    ],
)
def test_an_address_for_datagrams_is_of_ip_with_or_without_a_port(text: str, address: tuple[str, int | None]):
    assert kinds.udp_address.read(text) == text
    assert kinds.parse_udp_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "node-1", "0.0.0.0", "::", "224.0.0.1", "10.0.0.7:", "10.0.0.7:0", "10.0.0.7:65536", "10.0.0.7:x"]
)
def test_what_no_datagram_can_be_sent_to_is_refused(text: str):
    with pytest.raises(ValueError):
        kinds.udp_address.read(text)


@pytest.mark.parametrize(
    "given",
    [
        {"billing": "https://billing.internal:8443/api/", "mail.v2": "http://10.0.0.7"},
        '{"billing": "https://billing.internal:8443/api", "mail.v2": "http://10.0.0.7/"}',
    ],
)
def test_services_are_read_from_a_file_and_from_a_variable(given):
    expected = {"billing": "https://billing.internal:8443/api", "mail.v2": "http://10.0.0.7"}
    assert ExecutorSettings(services=given).services == kinds.services.read(given) == expected
    assert kinds.services.read(kinds.services.write(expected)) == expected


@pytest.mark.parametrize(
    "given",
    [
        *({name: "http://a.internal"} for name in ("", "Billing", "a b", "-a", "a.", "a/b", "a:1", "ä", "x" * 64, 1)),
        *({"a": url} for url in ("", "a.internal", "ftp://a", "http://", "http://a?x=1", "http://a#b", None, 1)),
        *({"a": url} for url in ("http://me:pw@a.internal", "http://me@a", "http://a:99999", "service://b/x")),
        ["a"],
        "a=http://b",
    ],
)
def test_what_is_no_name_or_no_address_of_a_service_is_refused(given):
    with pytest.raises((ValueError, TypeError)):
        kinds.services.read(given)


def test_a_store_is_shown_as_it_is_named_from_any_folder_and_without_its_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kinds.shown_store_address("sqlite:///noonbell.db") == f"sqlite:///{tmp_path}/noonbell.db"
    assert kinds.shown_store_address("sqlite:////srv/50%25.db") == "sqlite:////srv/50%25.db"
    assert "secret" not in kinds.shown_store_address("postgresql://ann:secret@db/noonbell")
