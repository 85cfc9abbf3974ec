# Noonbell in a container, built from this source tree: docs/how-to/run-in-a-container.md
ARG PYTHON=3.12
# A tag may point elsewhere tomorrow. For a build that can be repeated, give the digest that you have checked:
# --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:${PYTHON}-slim

FROM ${BASE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/build && python -m venv /opt/noonbell
# Every package by its hash, as a wheel: a source package would be built with whatever its build asks for that day.
COPY deploy/image.lock deploy/build.lock ./
RUN /opt/build/bin/python -m pip install --require-hashes --only-binary :all: --requirement build.lock
RUN /opt/noonbell/bin/python -m pip install --require-hashes --only-binary :all: --requirement image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY deploy ./deploy
RUN /opt/build/bin/python -m pip wheel --no-index --no-deps --no-build-isolation --wheel-dir dist .
RUN /opt/noonbell/bin/python -m pip install --no-index --no-deps dist/*.whl && /opt/noonbell/bin/python -m pip check

FROM ${BASE}
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin noonbell \
    && install -d -o noonbell -g noonbell /data
COPY --from=build /opt/noonbell /opt/noonbell
ENV PATH=/opt/noonbell/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NOONBELL_SERVER__HOST=0.0.0.0 \
    NOONBELL_STORE__URL=sqlite:////data/noonbell.db
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/api/v1/livez', timeout=2)"]
ENTRYPOINT ["noonbell"]
CMD ["serve"]
