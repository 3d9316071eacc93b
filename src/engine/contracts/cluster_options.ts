/** Where a NATS server is, and as whom one comes. */
export interface ClusterOptions {
  /** `nats://HOST:4222` or `tls://HOST` (Node), `wss://HOST` or `ws://HOST` (pages and Node); several of one NATS cluster. */
  readonly servers: string | readonly string[];
  /** Tells clusters of one server apart: 1 to 63 letters, digits, - and _; default `main`. */
  readonly name?: string;
  readonly token?: string;
  readonly user?: string;
  readonly password?: string;
  /** An nkey's seed (`SU...`). */
  readonly nkey?: string;
  /** What a .creds file holds. */
  readonly creds?: string;
  /** PEM texts: who signed the server's certificate, and a certificate and key of one's own. Node only: a page has the browser's. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  readonly signal?: AbortSignal;
}

/** A cluster whose ranks run a model. */
export interface ClusterRanksOptions extends Omit<ClusterOptions, 'signal'> {
  /** Ranks' adapters or drivers may differ: answers are then near one rank's, not its bits. Default false. */
  readonly mixed?: boolean;
  /** Seconds that a rank that is gone may take to come, before others take its share; default 10. */
  readonly patience?: number;
}

/** Before the name of a model that the cluster's server keeps (cluster/store). */
export const STORED = 'cluster:';

/** Whether this names such a model. */
export const isStored = (where: unknown): where is `${typeof STORED}${string}` =>
  typeof where === 'string' && where.startsWith(STORED);
