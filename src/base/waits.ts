export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Until something is so, or the time is over. */
export async function until(isSo: () => boolean, ms: number): Promise<void> {
  for (const end = performance.now() + ms; !isSo() && performance.now() < end;) await pause(10);
}

/** `work`, or a rejection where it takes longer (the work itself may go on unseen). */
export async function inTime<T>(work: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    work.catch(() => {});
  }
}

/** What the work gives for each item, at most `width` at a time; those under way end before the first error is thrown. */
export async function inParallel<T, R>(
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const left = items.entries();
  const results: R[] = [];
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const [at, item] of left) {
      if (failures.length > 0) return;
      await work(item).then(
        (result) => (results[at] = result),
        (error: unknown) => failures.push(error),
      );
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  if (failures.length > 0) throw failures[0];
  return results;
}
