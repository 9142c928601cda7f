# The page and the HTTP API of `ccal serve`, for the CPU:
#   docker build --tag ccal .
#   docker run --rm --publish 127.0.0.1:8000:8000 --volume "$PWD/runs:/data:ro" ccal serve --host 0.0.0.0 /data/first
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
ENV PYTHONUNBUFFERED=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
WORKDIR /install
COPY constraints.txt ./
COPY --from=build /wheels /wheels
# Python's own index serves torch with gigabytes for GPUs. PyTorch names one of builds for the CPU
# (https://pytorch.org/get-started): give its address by --build-arg TORCH_INDEX=...
ARG TORCH_INDEX=""
RUN pip install --no-cache-dir --constraint constraints.txt \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
        "$(echo /wheels/*.whl)[images,milvus,music,plots,postgres,sentences,serve,text]" faiss-cpu \
    && useradd --create-home --uid 1000 ccal \
    && install --directory --owner=ccal /data /home/ccal/.cache
USER 1000
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --start-period=5m CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["ccal"]
CMD ["serve", "--host", "0.0.0.0", "--no-open"]
