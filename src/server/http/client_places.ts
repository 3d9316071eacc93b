import { ApiError, badRequest } from '../api_error.js';

/** Answers under way by client: one client has no more than its share of the places. */
export class ClientPlaces {
  readonly #taken = new Map<string, number>();

  /** @param elsewhere answers of a client that others like this one have under way */
  constructor(private readonly elsewhere: (client: string) => number = () => 0) {}

  /** By client. */
  get taken(): ReadonlyMap<string, number> {
    return this.#taken;
  }

  /**
   * Runs a request for `wanted` answers of a client.
   * @param most answers that a client may have under way
   * @throws ApiError 400 for more in one request, 429 for more in several
   */
  async run<T>(client: string, wanted: number, most: number, param: string, request: () => Promise<T>): Promise<T> {
    if (wanted > most) {
      throw badRequest(`${wanted} answers in one request: this server takes at most ${most} of one client`, param);
    }
    const taken = (this.#taken.get(client) ?? 0) + this.elsewhere(client);
    if (taken + wanted > most) {
      const message = `you have ${taken} answers under way, and this server takes at most ${most} of one client; try again when some have ended`;
      throw new ApiError(429, message, { code: 'client_queue_full', headers: { 'Retry-After': '1' } });
    }
    this.#change(client, wanted);
    try {
      return await request();
    } finally {
      this.#change(client, -wanted);
    }
  }

  #change(client: string, by: number): void {
    const now = (this.#taken.get(client) ?? 0) + by;
    if (now > 0) this.#taken.set(client, now);
    else this.#taken.delete(client);
  }
}
