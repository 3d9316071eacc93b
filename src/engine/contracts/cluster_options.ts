/** Where a NATS server is, and as whom one comes; or tabs without one. */
export interface ClusterOptions {
  /** `nats://HOST:4222` or `tls://HOST` (Node), `wss://HOST` or `ws://HOST` (pages and Node); several of one NATS cluster. */
  readonly servers?: string | readonly string[];
  /** In place of a server, this page and those that it invited (`openPeers`). */
  readonly peers?: Pick<Peers, 'connection'>;
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

/** What is said of a page that is to be joined, to whoever decides. */
export interface PeerAsks {
  /** Six digits, which are the same in both pages where nobody stands between them. */
  readonly code: string;
  /** The other page's rank. */
  readonly name: string;
}

/** How pages reach each other (`openPeers`, `joinPeer`). */
export interface PeerOptions {
  /** Of this page's rank: 1 to 63 letters, digits, - and _. */
  readonly name?: string;
  /** `high-performance` or `low-power`; default: the browser's choice. */
  readonly adapter?: string;
  /** Bytes of GPU memory that it gives; default: no limit. */
  readonly memory?: number;
  /** Asked in both pages: whether the other one, which shows the same code, may be joined. */
  readonly confirm: (asks: PeerAsks) => boolean | Promise<boolean>;
  /** STUN and TURN servers; default: none, which is enough within a browser or a network. */
  readonly iceServers?: RTCIceServer[];
  /** An address that keeps texts: `PUT` and `GET` of `RELAY/ID-offer` and `RELAY/ID-answer`, 404 where there is none. */
  readonly relay?: string;
  readonly signal?: AbortSignal;
}

export interface Invitation {
  /** Names it to pages of this browser and origin, and by a relay. */
  readonly id: string;
  /** All of it, to be copied. */
  readonly text: string;
  /** What the other page says, where somebody copies that. @throws SplitkvError `usage` for another text, or where it was used */
  accept(answer: string): Promise<void>;
  /** The name of the rank that came. @throws SplitkvError `usage` where somebody says no, `io` where they don't reach each other, `aborted` */
  readonly joined: Promise<string>;
}

/** This page as a rank, and the pages that it invites: a cluster without a server. */
export interface Peers {
  /** Of the ranks that are there, this page's first. */
  readonly names: readonly string[];
  invite(): Promise<Invitation>;
  close(): Promise<void>;
  /** What `load` talks by. */
  readonly connection: object;
}

/** Before the name of a model that the cluster's server keeps (cluster/store). */
export const STORED = 'cluster:';

/** Whether this names such a model. */
export const isStored = (where: unknown): where is `${typeof STORED}${string}` =>
  typeof where === 'string' && where.startsWith(STORED);
