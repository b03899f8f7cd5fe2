# The image of lapsed, for machines without Rust: docker build -t lapsed .
# `scripts/package` writes the same image without Docker: it takes what follows the last FROM from this file.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates musl-tools
WORKDIR /source
COPY . .
RUN target=$(uname -m)-unknown-linux-musl && rustup target add $target && \
    cargo build --release --locked --package lapsed-cli --target $target && \
    install -D target/$target/release/lapsed /image/lapsed && \
    install -m 644 dist/image/lapsed.toml /etc/ssl/certs/ca-certificates.crt /image && \
    mkdir -m 700 /image/data && mkdir /image/run && mkdir -m 1777 /image/tmp

FROM scratch
COPY --from=build /image/lapsed /usr/bin/lapsed
COPY --from=build /image/lapsed.toml /etc/lapsed/lapsed.toml
COPY --from=build /image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /image/data /var/lib/lapsed
COPY --from=build --chown=65532:65532 /image/run /run/lapsed
COPY --from=build /image/tmp /tmp
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /var/lib/lapsed
VOLUME ["/var/lib/lapsed"]
EXPOSE 6380 8787
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/bin/lapsed", "healthcheck"]
ENTRYPOINT ["/usr/bin/lapsed"]
CMD ["listen", "--migrate-sqlite"]
