/** What a generator gives, as a stream. Who leaves the stream ends the generator. @param left is told of that first */
export const streamOf = <T>(
  pieces: AsyncGenerator<T, void, undefined>,
  left: (reason: unknown) => void = () => {},
): ReadableStream<T> =>
  new ReadableStream<T>({
    // What it rejects with is the stream's error.
    async pull(controller) {
      const next = await pieces.next();
      if (next.done) controller.close();
      else controller.enqueue(next.value);
    },
    async cancel(reason) {
      left(reason);
      await pieces.return(undefined).catch(() => {});
    },
  });
