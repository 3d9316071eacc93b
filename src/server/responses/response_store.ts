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

interface Kept extends KeptResponse {
  readonly bytes: number;
}

/** Responses that clients may ask for again, each its own; the oldest are forgotten first, and all of them when the server ends. */
export class ResponseStore {
  readonly #kept = new Map<string, Kept>();
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
    if (this.#kept.has(id)) this.#forget(id);
    this.#kept.set(id, { ...stored, client, bytes });
    this.#bytes += bytes;
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes <= this.maxBytes && this.#kept.size <= this.most) break;
      this.#forget(oldest);
    }
  }

  /** @throws ApiError 404, or as `field` of a request 400, where there is none of this client's */
  get(client: string, id: string, field?: string): StoredResponse {
    const found = this.#kept.get(id);
    if (found?.client === client) return found;
    const message = `there is no response '${id.slice(0, 100)}' here; responses are kept for a while, and not with "store": false`;
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
    this.#bytes -= this.#kept.get(id)!.bytes;
    this.#kept.delete(id);
  }
}

/** What a response was asked, as OpenAI lists it: the latest first. */
export function itemList(items: readonly object[]): object {
  const data = items.map((item, index) => ({ type: 'message', id: `item_${index}`, ...item })).toReversed();
  return { object: 'list', data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: false };
}
