# Noonbell in a container, built from this source tree: docs/how-to/run-in-a-container.md
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/noonbell
ENV PATH=/opt/noonbell/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src ./src
# The lock bounds what is chosen; packages that only development needs are not among the extras.
RUN sed -e 's/ *\\$//' -e '/^ *--hash/d' requirements.lock > /tmp/constraints.txt \
    && pip install --constraint /tmp/constraints.txt '.[all]'

FROM python:${PYTHON}-slim
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
