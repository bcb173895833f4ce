# docker build -t gateway .                    the daemon and its commands
# docker build -t gateway-spark --target spark .   with Spark and Java, for `gateway spark`
#
# docker run --hostname gw-1 -p 5044:5044 -v gateway:/var/lib/gateway gateway
# Give it a host name (or `node` in the configuration): the journal on the volume
# belongs to that name, and a container's own changes with every start.
#
# What is installed is what requirements/*.txt name, by their hashes; `make lock` renews
# them.  The base is named by its version; to pin it for good, name it by its digest:
#   docker build --build-arg BASE=python@sha256:… .
#
# Of a release, for amd64 and arm64, with its version on it: `make release` says the line
# that begins with `docker buildx bake` (release/docker-bake.json).
ARG BASE=python:3.13.9-slim-bookworm
ARG VERSION=unreleased
ARG REVISION=
ARG CREATED=
ARG SOURCE=

FROM ${BASE} AS wheel
WORKDIR /src
COPY requirements/build.txt ./requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY release/hatch_build.py ./release/
COPY gateway ./gateway
COPY twisted ./twisted
COPY conf ./conf
COPY packages/gateway-native ./packages/gateway-native
# Its compiler comes from PyPI, too.
ENV CC="python -m ziglang cc -s"
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . ./packages/gateway-native

FROM ${BASE} AS build
RUN python -m venv /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH
COPY requirements/daemon.txt /requirements/
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements/daemon.txt
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir --no-deps --no-index /dist/*.whl \
 && twistd --help > /dev/null
# That made Twisted's list of plugins, which nobody may write later.

FROM build AS build-spark
COPY requirements/build.txt requirements/spark.txt /requirements/
# PySpark is published as source: what builds it is named as well.
RUN pip install --no-cache-dir --require-hashes -r /requirements/build.txt \
 && pip install --no-cache-dir --require-hashes --no-build-isolation -r /requirements/spark.txt

FROM ${BASE} AS runtime
RUN groupadd --system --gid 10001 gateway \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/gateway --shell /usr/sbin/nologin gateway \
 && install -d -o 10001 -g 10001 -m 0750 /var/lib/gateway
COPY conf/gateway.yaml /etc/gateway/gateway.yaml
ARG BASE
ARG VERSION
ARG REVISION
ARG CREATED
ARG SOURCE
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.created=$CREATED \
      org.opencontainers.image.source=$SOURCE \
      org.opencontainers.image.base.name=$BASE \
      org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/gateway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/gateway
VOLUME /var/lib/gateway

FROM runtime AS spark
LABEL org.opencontainers.image.title=gateway-spark \
      org.opencontainers.image.description="The Spark job of gateway: spool files to tables."
COPY --from=build-spark /opt/gateway /opt/gateway
# The job leaves word every few seconds that it runs, which the gateway reads, too.
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s CMD \
  ["python", "-c", "import os, time; assert time.time() - os.stat('/var/lib/gateway/lake/.gateway/health.json').st_mtime < 30"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["gateway"]
CMD ["spark", "--config", "/etc/gateway/gateway.yaml"]

# The last stage is what `docker build` makes when nobody names one.
FROM runtime AS gateway
LABEL org.opencontainers.image.title=gateway \
      org.opencontainers.image.description="Log shippers, stream writers and game clients in, Spark tables out."
COPY --from=build /opt/gateway /opt/gateway
# Beats; the others are for those who add listeners: Pomelo, Pravega with its
# controller (and options.advertise), RS.io.
EXPOSE 5044 3010 12345 9090 7400
# Alive; whether it takes events is /readyz.  The port is admin.listen's.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD \
  ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
# twistd is process 1: it handles SIGTERM itself and starts no processes to reap.
STOPSIGNAL SIGTERM
ENTRYPOINT ["twistd", "--nodaemon", "--pidfile=", "gateway"]
CMD ["--config", "/etc/gateway/gateway.yaml"]
