# docker build -t gateway .                    the daemon and its commands
# docker build -t gateway-spark --target spark .   with Spark and Java, for `gateway spark`
#
# docker run --hostname gw-1 -p 5044:5044 -v gateway:/var/lib/gateway gateway
# Give it a host name (or `node` in the configuration): the journal on the volume
# belongs to that name, and a container's own changes with every start.

FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH
COPY pyproject.toml README.md LICENSE ./
COPY gateway ./gateway
COPY twisted ./twisted
COPY rsio-check ./rsio-check
COPY conf ./conf
RUN pip install --no-cache-dir . \
 && twistd --help > /dev/null
# That made Twisted's list of plugins, which nobody may write later.

FROM build AS build-spark
RUN pip install --no-cache-dir '.[spark]'

FROM python:3.13-slim AS runtime
RUN useradd --system --uid 10001 --home-dir /var/lib/gateway --shell /usr/sbin/nologin gateway \
 && install -d -o gateway -g gateway -m 0750 /var/lib/gateway
COPY conf/gateway.yaml /etc/gateway/gateway.yaml
ENV PATH=/opt/gateway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER gateway
WORKDIR /var/lib/gateway
VOLUME /var/lib/gateway

FROM runtime AS spark
COPY --from=build-spark /opt/gateway /opt/gateway
ENTRYPOINT ["gateway"]
CMD ["spark", "--config", "/etc/gateway/gateway.yaml"]

# The last stage is what `docker build` makes when nobody names one.
FROM runtime AS gateway
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
