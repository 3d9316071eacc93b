let number = 0;

/**
 * Runs something that should go on while the tab is hidden: browsers freeze hidden tabs after some minutes, but none that holds a
 * lock. Resolves with how many seconds of it the tab was hidden, too.
 */
export async function inBackgroundToo<T>(what: () => Promise<T>): Promise<{ result: T; hiddenSeconds: number }> {
  const watch = new HiddenTime();
  const run = async (): Promise<{ result: T; hiddenSeconds: number }> => {
    try {
      return { result: await what(), hiddenSeconds: watch.seconds() };
    } finally {
      watch.end();
    }
  };
  const { locks } = navigator as Partial<Pick<Navigator, 'locks'>>;
  return locks ? locks.request(`splitkv-chat-${number++}-${crypto.randomUUID()}`, run) : run();
}

class HiddenTime {
  #milliseconds = 0;
  #since = document.hidden ? performance.now() : undefined;
  readonly #listener = (): void => {
    if (this.#since !== undefined) this.#milliseconds += performance.now() - this.#since;
    this.#since = document.hidden ? performance.now() : undefined;
  };

  constructor() {
    document.addEventListener('visibilitychange', this.#listener);
  }

  seconds(): number {
    const now = this.#since === undefined ? 0 : performance.now() - this.#since;
    return (this.#milliseconds + now) / 1000;
  }

  end(): void {
    document.removeEventListener('visibilitychange', this.#listener);
  }
}
