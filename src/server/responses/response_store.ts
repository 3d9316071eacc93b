import { valueIn } from '../../base/lists.js';
import { shortened } from '../../base/json.js';
import type { ChatMessage } from '../../index.js';
import { ApiError } from '../api_error.js';

/** A response as it was told, and what it goes on from. */
export interface StoredResponse {
  readonly body: { readonly id: string };
  readonly items: readonly object[];
  /** All of the conversation, the answer included, without instructions. */
  readonly messages: readonly ChatMessage[];
}

/** One, and whose it is. */
export interface KeptResponse extends StoredResponse {
  readonly client: string;
}

/** What one client holds. */
interface Held {
  /** The oldest first. */
  readonly ids: Set<string>;
  bytes: number;
}

/**
 * Responses that clients may ask for again, each its own. Where the room is full, the oldest of the client that holds most is
 * forgotten: nobody loses what is within an equal share. All of them are when the server ends.
 */
export class ResponseStore {
  readonly #kept = new Map<string, KeptResponse & { readonly bytes: number }>();
  readonly #held = new Map<string, Held>();
  #bytes = 0;

  /** @param maxBytes of the texts of all of them, about; @param most how many there may be */
  constructor(
    private readonly maxBytes: number,
    private readonly most = 4096,
  ) {}

  get size(): number {
    return this.#kept.size;
  }

  /** The oldest first. */
  *all(): Generator<KeptResponse, void, undefined> {
    for (const { bytes: _, ...kept } of this.#kept.values()) yield kept;
  }

  add(client: string, stored: StoredResponse): void {
    const { id } = stored.body;
    const bytes = JSON.stringify([stored.body, stored.items, stored.messages]).length;
    this.#forget(id);
    this.#kept.set(id, { ...stored, client, bytes });
    this.#bytes += bytes;
    const held = valueIn(this.#held, client, () => ({ ids: new Set<string>(), bytes: 0 }));
    held.ids.add(id);
    held.bytes += bytes;
    while (this.#bytes > this.maxBytes) this.#forgetOldest(this.#largest((of) => of.bytes));
    while (this.#kept.size > this.most) this.#forgetOldest(this.#largest(({ ids }) => ids.size));
  }

  /** The client that holds most; of several the one that came first. */
  #largest(of: (held: Held) => number): Held {
    return [...this.#held.values()].reduce((most, held) => (of(held) > of(most) ? held : most));
  }

  #forgetOldest({ ids }: Held): void {
    const [oldest] = ids;
    if (oldest !== undefined) this.#forget(oldest);
  }

  /** @throws ApiError 404, or as `field` of a request 400, where there is none of this client's */
  get(client: string, id: string, field?: string): StoredResponse {
    const found = this.#kept.get(id);
    if (found?.client === client) return found;
    const message = `there is no response '${shortened(id)}' here; responses are kept for a while, and not with "store": false`;
    throw field === undefined
      ? new ApiError(404, message)
      : new ApiError(400, message, { code: 'previous_response_not_found', param: field });
  }

  /** @throws ApiError 404 */
  delete(client: string, id: string): void {
    this.get(client, id);
    this.#forget(id);
  }

  #forget(id: string): void {
    const kept = this.#kept.get(id);
    if (!kept) return;
    this.#kept.delete(id);
    this.#bytes -= kept.bytes;
    const held = this.#held.get(kept.client)!;
    held.ids.delete(id);
    held.bytes -= kept.bytes;
    if (held.ids.size === 0) this.#held.delete(kept.client);
  }
}

/** What a response was asked, as OpenAI lists it: the latest first. */
export function itemList(items: readonly object[]): object {
  const data = items.map((item, index) => ({ type: 'message', id: `item_${index}`, ...item })).toReversed();
  return { object: 'list', data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: false };
}
