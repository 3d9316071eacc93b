/** What is kept by a name up to so many bytes, or of whatever else its sizes are: what was used last stays. */
export class Kept<T, Name = string> {
  readonly #kept = new Map<Name, { readonly value: T; readonly bytes: number }>();
  #bytes = 0;

  constructor(readonly maxBytes: number) {}

  get(name: Name): T | undefined {
    const entry = this.#kept.get(name);
    if (!entry) return undefined;
    this.#kept.delete(name);
    this.#kept.set(name, entry);
    return entry.value;
  }

  /** The newest is kept however large it is. */
  set(name: Name, value: T, bytes: number): void {
    this.delete(name);
    this.#kept.set(name, { value, bytes });
    this.#bytes += bytes;
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes <= this.maxBytes || oldest === name) break;
      this.delete(oldest);
    }
  }

  /** Nothing, where it isn't kept. */
  delete(name: Name): void {
    const entry = this.#kept.get(name);
    if (!entry) return;
    this.#kept.delete(name);
    this.#bytes -= entry.bytes;
  }
}
