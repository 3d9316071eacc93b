import type { IncomingMessage, ServerResponse } from 'node:http';
import { formatBytes, joinBytes } from '../../base/math.js';
import { ApiError, badRequest } from '../api_error.js';

/**
 * A request's body. A client that asks whether it may send its body is told so once its headers allow it.
 * @param room counts the bytes; whoever is done with them gives them back
 * @throws ApiError 400 for none, 413 for more bytes than allowed (as soon as that is known), 415 for a body that is compressed, 429
 *   where there is no room. Where the rest of it is still to come the connection ends with the answer.
 */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
  room: BodyRoom,
): Promise<Uint8Array<ArrayBuffer>> {
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') {
    const message = `content-encoding ${encoding.slice(0, 100)} is not supported; send the body as it is`;
    throw new ApiError(415, message, { ends: true });
  }
  const tooLarge = (): ApiError =>
    new ApiError(
      413,
      `the body is larger than ${formatBytes(maxBytes)}; send less, or start the server with --max-body`,
      { ends: true },
    );
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  if (request.headers.expect !== undefined) response.writeContinue();
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of leavingOpen(request)) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    room.take(chunk.length);
    chunks.push(chunk);
  }
  if (bytes === 0) throw badRequest('the body is empty; expected a JSON object');
  return joinBytes(chunks);
}

/** Its chunks. A reader that stops early leaves the connection open: the answer is still to be sent on it. */
const leavingOpen = (request: IncomingMessage): AsyncIterable<Buffer> =>
  request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;

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
          { code: 'busy', retryAfter: 1, ends: true },
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
