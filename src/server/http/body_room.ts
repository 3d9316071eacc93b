import { formatBytes } from '../../base/math.js';
import { ApiError } from '../api_error.js';

/** Bodies up to this size always have room: the limit on connections bounds them. */
const ALWAYS = 65_536;

/** The bytes of request bodies that are held at once, over all clients, and of one client up to half of them. */
export class BodyRooms {
  #bytes = 0;
  readonly #byClient = new Map<string, number>();

  constructor(private readonly maxBytes: number) {}

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Room for one body of the client. */
  open(client: string): BodyRoom {
    let held = 0;
    const add = (count: number): void => {
      held += count;
      this.#bytes += count;
      const own = (this.#byClient.get(client) ?? 0) + count;
      if (own > 0) this.#byClient.set(client, own);
      else this.#byClient.delete(client);
    };
    return {
      take: (count) => {
        add(count);
        const own = this.#byClient.get(client)!;
        if (held <= ALWAYS || (this.#bytes <= this.maxBytes && own <= this.maxBytes / 2)) return;
        throw new ApiError(
          429,
          `too many large requests at once: their bodies have more than ${formatBytes(this.maxBytes)}; try again in a second`,
          { code: 'busy', headers: { 'Retry-After': '1' }, ends: true },
        );
      },
      close: () => add(-held),
    };
  }
}

export interface BodyRoom {
  /** @throws ApiError 429 where there is no room for so many bytes more */
  take(count: number): void;
  /** The bytes are no longer held. */
  close(): void;
}
