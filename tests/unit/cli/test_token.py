"""`noonbell token create`: a token is of use only in the store that the server has."""

from __future__ import annotations


def test_without_a_named_store_no_new_one_is_made(noonbell, tmp_path, monkeypatch):
    for name in ("NOONBELL_STORE__URL", "NOONBELL_URL"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = noonbell("token", "create", "--role", "viewer", "--name", "ada")
    assert (code, out) == (3, "")
    assert "--store" in err
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_named_is_made_and_said(noonbell, tmp_path, monkeypatch):
    code, out, err = noonbell("token", "create", "--role", "viewer", "--name", "ada", "--store", "sqlite:///bell.db")
    assert (code, out[:3]) == (0, "nb_")
    assert "/bell.db (newly created" in err
    again = noonbell("token", "create", "--role", "viewer", "--name", "eve", "--store", "sqlite:///bell.db")
    assert "newly created" not in again[2]
    monkeypatch.setenv("NOONBELL_STORE__URL", "sqlite:///other.db")
    assert noonbell("token", "create", "--role", "viewer", "--name", "bob")[0] == 0
    assert (tmp_path / "other.db").exists()


def test_the_file_of_a_server_that_has_run_here_is_found(noonbell, tmp_path, monkeypatch):
    monkeypatch.delenv("NOONBELL_STORE__URL", raising=False)
    assert noonbell("migrate", "--store", "sqlite:///noonbell.db")[0] == 0
    code, _, err = noonbell("token", "create", "--role", "viewer", "--name", "ada")
    assert (code, "noonbell.db" in err) == (0, True)


def test_who_names_no_store_is_told_whose_tokens_are_listed(noonbell, tmp_path, monkeypatch):
    monkeypatch.delenv("NOONBELL_STORE__URL", raising=False)
    assert noonbell("migrate", "--store", "sqlite:///noonbell.db")[0] == 0
    assert noonbell("token", "list")[2] == f"no store was named: this is sqlite:///{tmp_path}/noonbell.db\n"
    assert noonbell("token", "list", "--store", "sqlite:///noonbell.db")[2] == ""


def test_where_a_server_is_named_and_no_store_the_reader_is_told_that_they_may_differ(noonbell, monkeypatch):
    monkeypatch.delenv("NOONBELL_STORE__URL", raising=False)
    monkeypatch.setenv("NOONBELL_URL", "http://bell.internal:9000")
    assert noonbell("migrate", "--store", "sqlite:///noonbell.db")[0] == 0
    code, _, err = noonbell("token", "create", "--role", "viewer", "--name", "ada")
    assert (code, "http://bell.internal:9000" in err, "--store" in err) == (0, True, True)
    code, _, err = noonbell("token", "create", "--role", "viewer", "--name", "bob", "--store", "sqlite:///noonbell.db")
    assert (code, "http://bell.internal:9000" in err) == (0, False)
