import type { ErrorCode } from '../../src/base/errors.js';
import type { ClusterOptions } from '../../src/engine/contracts/cluster_options.js';
import type { RankState } from '../../src/cluster/ranks/rank_host.js';
import type { PeerAsks } from '../../src/index.js';

/** A rank that a page is to be. */
export interface JoinRequest {
  readonly cluster: ClusterOptions;
  /** In place of a cluster, of a page that invites; and where its relay is. */
  readonly invitation?: string;
  readonly relay?: string | undefined;
  readonly name: string;
  /** `high-performance` or `low-power`; '' for whichever the browser gives. */
  readonly adapter: string;
  /** Bytes of GPU memory. */
  readonly memory?: number;
}

/** To the worker, of which each is asked once to join. */
export type HostCommand = { readonly type: 'join'; readonly request: JoinRequest } | { readonly type: 'leave' };

/** What a rank is, as its page shows it. */
export interface JoinedRank {
  readonly name: string;
  readonly adapter: string;
  /** The adapter is the CPU. */
  readonly software: boolean;
  readonly version: string;
}

/** From the worker. */
export type HostReport =
  | { readonly type: 'joined'; readonly rank: JoinedRank }
  | { readonly type: 'state'; readonly state: RankState }
  | { readonly type: 'failed'; readonly code: ErrorCode; readonly message: string }
  /** By an invitation: what is to be copied, and what somebody is to compare. */
  | { readonly type: 'answered'; readonly text: string }
  | { readonly type: 'asks'; readonly asks: PeerAsks; readonly decide: (ok: boolean) => void }
  | { readonly type: 'left' };
