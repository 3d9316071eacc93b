/**
 * Room: pages as ranks without a NATS server, by WebRTC: how one invites another, which agrees, and hosts a rank (here);
 * what they tell each other to be reached (signals.ts, packed.ts); and the bus between them (bus.ts).
 */

import {
  ioError,
  messageOf,
  type SplitkvError,
  throwIfAborted,
  unsupportedError,
  usageError,
  withAbort,
} from '../../base/errors.js';
import { isObject, parsed } from '../../base/json.js';
import { sha256 } from '../../base/math.js';
import { VERSION } from '../../base/version.js';
import { inTime, pause } from '../../base/waits.js';
import type { Invitation, PeerOptions, Peers } from '../../engine/contracts/cluster_options.js';
import { namedAdapter } from '../../engine/planning/rank_adapters.js';
import { checkName, isName } from '../connect.js';
import { hostRank, type RankHost, type RankHostOptions } from '../ranks/rank_host.js';
import { PeerBus } from './bus.js';
import {
  bareText,
  fingerprint,
  isId,
  type Post,
  postByRelay,
  postHere,
  readDescription,
  writeDescription,
} from './signals.js';

/** Addresses that weren't found until then don't come. */
const GATHER_MS = 5000;
/** Both pages know each other. */
const CONNECT_MS = 30_000;
/** People copy texts, and compare codes. */
const PEOPLE_MS = 600_000;
/** Of pages of this browser: one that is there says so at once. */
const HERE_MS = 3000;
/** A channel sends what it has before its connection is closed. */
const CLOSE_MS = 2000;

const USED = 'this invitation was used: each is for one page, have another one made';

/**
 * This page as a rank, and the first of those that it will invite: what `load`'s `cluster: { peers }` takes.
 * @throws SplitkvError `usage`, `unsupported` without WebRTC, as `openDevice`
 */
export async function openPeers(options: PeerOptions): Promise<Peers> {
  const { name = 'here' } = options;
  checkPeer(name);
  const bus = new PeerBus(true);
  const names = new Set([name]);
  const over = new AbortController();
  const peers: Peers = {
    connection: bus,
    get names() {
      return [...names];
    },
    invite: () => invite(bus, names, { ...options, name, signal: either(options.signal, over.signal) }),
    close: async () => {
      over.abort();
      await host.close();
      bus.end();
    },
  };
  const host = await hostHere(peers, name, options);
  return peers;
}

/** What a page that joins says beside how. */
export interface JoinPeerOptions extends PeerOptions, Pick<RankHostOptions, 'changed'> {
  readonly name: string;
  /** Told what is to be copied to the page that invites, which may get it otherwise: within a browser, and by a relay. */
  readonly answered?: (answer: string) => void;
}

/**
 * Joins the page that invited, as a rank of what it loads.
 * @param invitation its text, its id (with a relay, or of a page of this browser), or an address that ends with either
 * @throws SplitkvError `usage` for what is no invitation, one that was used, and where somebody says no; `io` where the pages don't reach
 *   each other; `aborted`, `unsupported`, as `openDevice`
 */
export async function joinPeer(invitation: string, options: JoinPeerOptions): Promise<RankHost> {
  const { name, relay, signal, answered } = options;
  checkPeer(name);
  const over = new AbortController();
  const ends = either(signal, over.signal);
  const posts: Post[] = [];
  const connection = connect(options);
  try {
    const given = bareText(invitation);
    const offer = await readDescription(isId(given) ? await offerOf(given, relay, ends, posts) : given, 'offer');
    const { id } = offer;
    const channel = new Promise<RTCDataChannel>((resolve) => {
      connection.ondatachannel = (event) => resolve(event.channel);
    });
    await set(connection, offer);
    const answer = await described(connection, id);
    if (relay !== undefined && !(await postByRelay(relay, id).put('answer', answer))) throw usageError(USED);
    const here = postHere(id);
    posts.push(here);
    await here.put('answer', answer);
    answered?.(answer);
    // A page of this browser says whose answer it took.
    const taken = here.get('taken', ends).then((whose) => {
      if (whose !== answer) throw usageError(USED);
      return pause(CONNECT_MS).then(() => {
        throw unreachable();
      });
    });
    const opened = await reached(
      Promise.race([channel.then(isOpen), taken]),
      relay === undefined ? PEOPLE_MS : CONNECT_MS,
      ends,
    );
    await agree(opened, connection, false, { ...options, signal: ends });
    const bus = busOver(connection, opened);
    try {
      const host = await hostHere({ connection: bus }, name, options);
      return {
        get card() {
          return host.card;
        },
        close: async () => {
          await host.close();
          bus.end();
        },
      };
    } catch (error) {
      bus.end();
      throw error;
    }
  } catch (error) {
    later(connection);
    throw error;
  } finally {
    over.abort();
    for (const post of posts) post.close();
  }
}

/** @throws SplitkvError `unsupported`, `usage` */
function checkPeer(name: string): void {
  if (typeof RTCPeerConnection === 'undefined') {
    throw unsupportedError('peers: this is no page, or a browser without WebRTC; use a NATS server (docs/cluster.md)');
  }
  checkName(name, 'rank');
}

const hostHere = (
  peers: Pick<Peers, 'connection'>,
  name: string,
  options: PeerOptions & Pick<RankHostOptions, 'changed'>,
): Promise<RankHost> =>
  hostRank({
    cluster: { peers: peers as Peers },
    name,
    adapter: options.adapter === undefined ? {} : namedAdapter(options.adapter),
    memory: options.memory,
    changed: options.changed,
  });

async function offerOf(id: string, relay: string | undefined, signal: AbortSignal, posts: Post[]): Promise<string> {
  const post = relay === undefined ? postHere(id) : postByRelay(relay, id);
  posts.push(post);
  try {
    return await inTime(post.get('offer', signal), HERE_MS);
  } catch (error) {
    throwIfAborted(signal, 'joining');
    const where =
      relay === undefined ? 'no page of this browser has it' : `${relay} doesn't have it (${messageOf(error)})`;
    throw usageError(
      `this invitation isn't there: ${where}. Is the page that invites still open? Otherwise copy its text`,
    );
  }
}

async function invite(
  bus: PeerBus,
  names: Set<string>,
  options: PeerOptions & { name: string; signal: AbortSignal },
): Promise<Invitation> {
  const { relay, signal } = options;
  throwIfAborted(signal, 'inviting');
  const id = crypto.randomUUID().replaceAll('-', '');
  const connection = connect(options);
  const channel = connection.createDataChannel('splitkv');
  const text = await described(connection, id);
  const here = postHere(id);
  const posts = [here, ...(relay === undefined ? [] : [postByRelay(relay, id)])];
  for (const post of posts) await post.put('offer', text);
  const ended = new AbortController();
  const ends = either(signal, ended.signal);
  let answer: ((text: string) => void) | undefined;
  const came = new Promise<string>((resolve) => (answer = resolve));
  let isUsed = false;
  const accept = async (given: string): Promise<void> => {
    const description = await readDescription(given, 'answer');
    if (description.id !== id) throw usageError('this is the answer to another invitation');
    if (isUsed) throw usageError(USED);
    isUsed = true;
    await set(connection, description);
    await here.put('taken', given.trim());
    answer?.(given);
  };
  const joined = (async () => {
    try {
      // What comes by itself and is wrong is nobody's fault here: the right one may still come.
      for (const post of posts)
        void post
          .get('answer', ends)
          .then(accept)
          .catch(() => {});
      await reached(came, PEOPLE_MS, ends);
      await reached(isOpen(channel), CONNECT_MS, ends, connection);
      const name = await agree(channel, connection, true, options);
      busOver(connection, channel, bus, () => names.delete(name));
      names.add(name);
      return name;
    } catch (error) {
      later(connection);
      throw error;
    } finally {
      ended.abort();
    }
  })();
  joined.catch(() => {});
  signal.addEventListener('abort', () => here.close(), { once: true });
  return { id, text, accept, joined };
}

const connect = ({ iceServers }: PeerOptions): RTCPeerConnection => new RTCPeerConnection(iceServers && { iceServers });

/** @throws SplitkvError `usage` */
async function set(connection: RTCPeerConnection, description: RTCSessionDescriptionInit): Promise<void> {
  const { type, sdp } = description;
  await connection.setRemoteDescription({ type, sdp: sdp! }).catch((error: unknown) => {
    throw usageError(`this browser can't read the other page's ${type} (${messageOf(error)})`);
  });
}

/** What this page says of itself, once it knows its addresses. */
async function described(connection: RTCPeerConnection, id: string): Promise<string> {
  const gathered = new Promise<void>((resolve) => {
    connection.onicegatheringstatechange = () => connection.iceGatheringState === 'complete' && resolve();
  });
  await connection.setLocalDescription();
  await Promise.race([gathered, pause(GATHER_MS)]);
  const { type, sdp } = connection.localDescription!;
  return writeDescription({ type: type as 'offer' | 'answer', id, sdp, version: VERSION });
}

const isOpen = (channel: RTCDataChannel): Promise<RTCDataChannel> =>
  new Promise((resolve) => {
    if (channel.readyState === 'open') resolve(channel);
    else channel.onopen = () => resolve(channel);
  });

const unreachable = (): SplitkvError =>
  ioError(
    "the pages don't reach each other: both must be in one network, or name a STUN or TURN server (iceServers). Make a new invitation, and keep both pages open",
  );

/** @param connection whose failure ends the wait @throws SplitkvError `io`, `aborted` */
async function reached<T>(
  work: Promise<T>,
  ms: number,
  signal: AbortSignal,
  connection?: RTCPeerConnection,
): Promise<T> {
  const late = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(unreachable()), ms);
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    if (connection)
      connection.onconnectionstatechange = () => connection.connectionState === 'failed' && reject(unreachable());
  });
  return withAbort(Promise.race([work, late]), signal, 'waiting for the other page');
}

const either = (a: AbortSignal | undefined, b: AbortSignal): AbortSignal => (a ? AbortSignal.any([a, b]) : b);

const later = (connection: RTCPeerConnection): void => void setTimeout(() => connection.close(), CLOSE_MS);

function busOver(
  connection: RTCPeerConnection,
  channel: RTCDataChannel,
  bus = new PeerBus(false),
  left: () => void = () => {},
): PeerBus {
  bus.join(channel, () => {
    left();
    later(connection);
  });
  return bus;
}

/**
 * Both pages say who they are, show a code, and go on when both are told that it is the same. Who stands between them has to choose its
 * number before it knows the other's, so it gets one try at a code of a million (as ZRTP and Bluetooth's comparison do).
 * @returns the other rank's name
 * @throws SplitkvError `usage` where one of them says no, `io` where it is gone or nobody says anything, `aborted`
 */
async function agree(
  channel: RTCDataChannel,
  { localDescription, remoteDescription }: RTCPeerConnection,
  isHost: boolean,
  { name: own = '', confirm, signal }: PeerOptions,
): Promise<string> {
  const told: unknown[] = [];
  let wake: () => void = () => {};
  channel.onmessage = ({ data }) => {
    told.push(typeof data === 'string' && data.length < 1000 ? parsed(data) : undefined);
    wake();
  };
  channel.onclose = () => {
    told.push('closed');
    wake();
  };
  const say = (value: object): void => channel.send(JSON.stringify(value));
  const next = async (): Promise<Readonly<Record<string, unknown>>> => {
    while (told.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    const value = told.shift();
    if (value === 'closed') throw ioError('the other page is gone');
    if (isObject(value)) return value;
    throw ioError('the other page says what no splitkv page says');
  };
  const hash = (text: string): Promise<string> => sha256(new TextEncoder().encode(text));
  const work = async (): Promise<string> => {
    const nonce = crypto.randomUUID();
    if (!isHost) say({ commit: await hash(nonce) });
    const { commit } = isHost ? await next() : {};
    if (isHost) say({ nonce, name: own });
    const { nonce: others, name } = await next();
    if (!isHost) say({ nonce, name: own });
    if (typeof others !== 'string' || (isHost && (await hash(others)) !== commit)) {
      throw ioError('the other page changed its number: somebody may stand between the pages');
    }
    if (typeof name !== 'string' || !isName(name)) throw ioError('the other page has no name');
    const sides = [fingerprint(localDescription!.sdp) + nonce, fingerprint(remoteDescription!.sdp) + others];
    const digits = Number.parseInt((await hash((isHost ? sides : sides.reverse()).join())).slice(0, 12), 16) % 1e6;
    const code = String(digits).padStart(6, '0').replace(/^.../, '$& ');
    const ours = Promise.resolve(confirm({ code, name })).then((ok) => {
      say({ ok });
      if (!ok) throw usageError(`${name} was not let in`);
    });
    const theirs = next().then(({ ok }) => {
      if (ok !== true) throw usageError(`${name} said no: the codes weren't the same, or it changed its mind`);
    });
    await Promise.all([ours, theirs]);
    return name;
  };
  try {
    return await withAbort(inTime(work(), PEOPLE_MS), signal, 'agreeing with the other page');
  } catch (error) {
    channel.close();
    throw error;
  }
}
