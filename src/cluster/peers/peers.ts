/**
 * Room: pages as ranks without a NATS server, by WebRTC: how one invites another, which agrees, and hosts a rank (here);
 * what they tell each other to be reached (signals.ts); and the bus between them (bus.ts).
 */

import {
  anySignal,
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
import { inTime, pause } from '../../base/waits.js';
import type { Invitation, PeerOptions, Peers } from '../../engine/contracts/cluster_options.js';
import { namedAdapter } from '../../engine/planning/rank_adapters.js';
import { checkName, isName } from '../connect.js';
import { hostRank, type RankHost, type RankHostOptions } from '../ranks/rank_host.js';
import { PeerBus } from './bus.js';
import { bareText, isId, type Post, postByRelay, postHere, readDescription, writeDescription } from './signals.js';

/** Addresses that weren't found until then don't come. */
const GATHER_MS = 5000;
/** Both pages know each other. */
const CONNECT_MS = 30_000;
/** People copy texts, and compare codes. */
const PEOPLE_MS = 600_000;
/** Pages of this browser, and relays, say what they have at once. */
const HERE_MS = 3000;
/** A channel sends what it has before its connection is closed. */
const CLOSE_MS = 2000;

const USED = 'this invitation was used: each is for one page, have another one made';

/** What a page that joins says beside how. */
export interface JoinPeerOptions extends PeerOptions, Pick<RankHostOptions, 'changed'> {
  readonly name: string;
  /** Told what is to be copied to the page that invites; of this browser, or by a relay, it hears of it by itself. */
  readonly answered?: (answer: string) => void;
}

/** As `openPeers` of src/entry.ts. */
export async function openPeers(options: PeerOptions): Promise<Peers> {
  const { name = 'here' } = options;
  checkPeer(name);
  const bus = new PeerBus(true);
  const names = new Set([name]);
  const host = await hostOn(bus, { ...options, name });
  const over = new AbortController();
  return {
    connection: bus,
    get names() {
      return [...names];
    },
    invite: () => invite(bus, names, { ...options, name, signal: anySignal(options.signal, over.signal) }),
    close: () => {
      over.abort();
      return host.close().then(() => bus.end());
    },
  };
}

/** As `joinPeer` of src/entry.ts. */
export async function joinPeer(invitation: string, options: JoinPeerOptions): Promise<RankHost> {
  const { name, relay, answered } = options;
  checkPeer(name);
  const over = new AbortController();
  const signal = anySignal(options.signal, over.signal);
  const connection = connect(options);
  try {
    const given = bareText(invitation);
    const offer = await readDescription(isId(given) ? await offerOf(given, relay, signal) : given, 'offer');
    let talk: Talk | undefined;
    const channel = new Promise<RTCDataChannel>((resolve) => {
      connection.ondatachannel = (event) => {
        talk = listen(event.channel);
        resolve(event.channel);
      };
    });
    await set(connection, offer);
    const answer = await described(connection, offer.id);
    const here = postHere(offer.id, signal);
    if (relay !== undefined && !(await postByRelay(relay, offer.id).put('answer', answer))) throw usageError(USED);
    await here.put('answer', answer);
    answered?.(answer);
    // A page of this browser says whose answer it took.
    const late = here.get('taken', signal).then(async (taken) => {
      if (taken !== answer) throw usageError(USED);
      await pause(CONNECT_MS);
      throw unreachable();
    });
    const wait = relay === undefined ? PEOPLE_MS : CONNECT_MS;
    const opened = await reached(Promise.race([channel.then(isOpen), late]), wait, signal);
    await agree(opened, talk!, connection, false, { ...options, signal });
    const bus = new PeerBus(false);
    whenLost(
      connection,
      bus.join(opened, () => later(connection)),
    );
    const host = await hostOn(bus, options).catch((error: unknown) => {
      bus.end();
      throw error;
    });
    return {
      get card() {
        return host.card;
      },
      close: () => host.close().then(() => bus.end()),
    };
  } catch (error) {
    later(connection);
    throw error;
  } finally {
    over.abort();
  }
}

async function invite(
  bus: PeerBus,
  names: Set<string>,
  options: PeerOptions & { readonly signal: AbortSignal },
): Promise<Invitation> {
  const { relay, signal } = options;
  throwIfAborted(signal, 'inviting');
  const id = crypto.randomUUID().replaceAll('-', '');
  const connection = connect(options);
  const channel = connection.createDataChannel('splitkv');
  const talk = listen(channel);
  const text = await described(connection, id);
  const here = postHere(id, signal);
  const posts: Post[] = [here, ...(relay === undefined ? [] : [postByRelay(relay, id)])];
  for (const post of posts) await post.put('offer', text);
  let came: () => void = () => {};
  const answered = new Promise<void>((resolve) => (came = resolve));
  let isUsed = false;
  const accept = async (given: string): Promise<void> => {
    const answer = await readDescription(given, 'answer');
    if (answer.id !== id) throw usageError('this is the answer to another invitation');
    if (isUsed) throw usageError(USED);
    isUsed = true;
    await set(connection, answer);
    await here.put('taken', given.trim());
    came();
  };
  const wait = async (): Promise<string> => {
    const over = new AbortController();
    const ends = anySignal(signal, over.signal);
    try {
      // What comes by itself and is wrong is nobody's fault here: the right one can be copied.
      for (const post of posts)
        post
          .get('answer', ends)
          .then(accept)
          .catch(() => {});
      await reached(answered, PEOPLE_MS, ends);
      await reached(isOpen(channel), CONNECT_MS, ends, connection);
      const name = await agree(channel, talk, connection, true, options);
      const left = (): void => {
        names.delete(name);
        later(connection);
      };
      whenLost(connection, bus.join(channel, left));
      names.add(name);
      return name;
    } catch (error) {
      later(connection);
      throw error;
    } finally {
      over.abort();
    }
  };
  const joined = wait();
  joined.catch(() => {});
  return { id, text, accept, joined };
}

/** @throws SplitkvError `unsupported`, `usage` */
function checkPeer(name: string): void {
  if (typeof RTCPeerConnection === 'undefined') {
    throw unsupportedError('peers: only pages have WebRTC; elsewhere use a NATS server, cluster: { servers }');
  }
  checkName(name, 'rank');
}

const hostOn = (
  bus: PeerBus,
  { name = '', adapter, memory, changed }: PeerOptions & Pick<RankHostOptions, 'changed'>,
): Promise<RankHost> =>
  hostRank({
    cluster: { peers: { connection: bus } },
    name,
    adapter: adapter === undefined ? {} : namedAdapter(adapter),
    memory,
    changed,
  });

async function offerOf(id: string, relay: string | undefined, signal: AbortSignal): Promise<string> {
  const post = relay === undefined ? postHere(id, signal) : postByRelay(relay, id);
  return inTime(post.get('offer', signal), HERE_MS).catch((error: unknown) => {
    const where = relay === undefined ? 'no page of this browser has it' : `${relay} has none (${messageOf(error)})`;
    throw usageError(
      `this invitation isn't there: ${where}. Is the page that invites still open? Otherwise copy its text`,
    );
  });
}

const connect = ({ iceServers }: PeerOptions): RTCPeerConnection => new RTCPeerConnection(iceServers && { iceServers });

/** @throws SplitkvError `usage` */
const set = (connection: RTCPeerConnection, { type, sdp }: RTCSessionDescriptionInit): Promise<void> =>
  connection.setRemoteDescription({ type, sdp: sdp! }).catch((error: unknown) => {
    throw usageError(`this browser can't read the other page's ${type} (${messageOf(error)})`);
  });

/** What this page says of itself, once it knows its addresses. */
async function described(connection: RTCPeerConnection, id: string): Promise<string> {
  const gathered = new Promise<void>((resolve) => {
    connection.onicegatheringstatechange = () => connection.iceGatheringState === 'complete' && resolve();
  });
  await connection.setLocalDescription();
  await Promise.race([gathered, pause(GATHER_MS)]);
  const { type, sdp } = connection.localDescription!;
  return writeDescription({ type: type as 'offer' | 'answer', id, sdp });
}

const isOpen = (channel: RTCDataChannel): Promise<RTCDataChannel> =>
  new Promise((resolve) => {
    channel.onopen = () => resolve(channel);
    if (channel.readyState === 'open') resolve(channel);
  });

const unreachable = (): SplitkvError =>
  ioError(
    "the pages don't reach each other: both must be in one network, or name a STUN or TURN server (iceServers). Make a new invitation, and keep both pages open",
  );

/** @param connection whose failure ends the wait @throws SplitkvError `io`, `aborted` */
function reached<T>(work: Promise<T>, ms: number, signal: AbortSignal, connection?: RTCPeerConnection): Promise<T> {
  const late = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(unreachable()), ms);
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    if (connection) whenLost(connection, () => reject(unreachable()));
  });
  return withAbort(Promise.race([work, late]), signal, 'waiting for the other page');
}

/** The last that is given is called. */
const whenLost = (connection: RTCPeerConnection, lost: () => void): void => {
  connection.onconnectionstatechange = () => connection.connectionState === 'failed' && lost();
};

const later = (connection: RTCPeerConnection): void => void setTimeout(() => connection.close(), CLOSE_MS);

const hash = (text: string): Promise<string> => sha256(new TextEncoder().encode(text));

/** The fingerprint of the DTLS certificate that a description announces, and a number. */
const sideOf = (description: RTCSessionDescription | null, nonce: string): string =>
  `${/^a=fingerprint:(.+)$/m
    .exec(description?.sdp ?? '')?.[1]
    ?.trim()
    .toUpperCase()} ${nonce}`;

interface Talk {
  readonly hear: (value: unknown) => void;
  /** @throws SplitkvError `io` */
  readonly next: () => Promise<Readonly<Record<string, unknown>>>;
}

/** What a channel's other end says, from the moment that there is the channel: it may speak before anybody here has seen it open. */
function listen(channel: RTCDataChannel): Talk {
  const told: unknown[] = [];
  let wake: () => void = () => {};
  const hear = (value: unknown): void => {
    told.push(value);
    wake();
  };
  channel.onmessage = ({ data }) => hear(typeof data === 'string' && data.length < 1000 ? parsed(data) : undefined);
  channel.onclose = () => hear({ isGone: true });
  const next = async (): Promise<Readonly<Record<string, unknown>>> => {
    while (told.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    const value = told.shift();
    if (!isObject(value)) throw ioError('the other page says what no splitkv page says');
    if (value['isGone']) throw ioError('the other page is gone');
    return value;
  };
  return { hear, next };
}

/**
 * Both pages say who they are, show a code, and go on when both are told that it is the same. Who stands between them has to choose its
 * number before it knows the other's, so it gets one try at a code of a million (as ZRTP and Bluetooth's comparison do).
 * @returns the other rank's name
 * @throws SplitkvError `usage` where one of them says no, `io` where it is gone or nobody says anything, `aborted`
 */
async function agree(
  channel: RTCDataChannel,
  { hear, next }: Talk,
  connection: RTCPeerConnection,
  isHost: boolean,
  { name: own, confirm, signal }: PeerOptions,
): Promise<string> {
  whenLost(connection, () => hear({ isGone: true }));
  const say = (value: object): void => channel.send(JSON.stringify(value));
  const work = async (): Promise<string> => {
    const nonce = crypto.randomUUID();
    if (!isHost) say({ commit: await hash(nonce) });
    const { commit } = isHost ? await next() : {};
    if (isHost) say({ nonce, name: own });
    const { nonce: theirs, name } = await next();
    if (!isHost) say({ nonce, name: own });
    if (typeof theirs !== 'string' || (isHost && (await hash(theirs)) !== commit) || !isName(name)) {
      throw ioError("the other page doesn't say what it promised: somebody may stand between the pages");
    }
    const sides = [sideOf(connection.localDescription, nonce), sideOf(connection.remoteDescription, theirs)];
    const digits = Number.parseInt((await hash((isHost ? sides : sides.reverse()).join())).slice(0, 12), 16) % 1e6;
    const code = String(digits).padStart(6, '0').replace(/^.../, '$& ');
    const asked = async (): Promise<void> => {
      const ok = await confirm({ code, name: name as string });
      say({ ok });
      if (!ok) throw usageError(`${name as string} was not let in`);
    };
    const answered = async (): Promise<void> => {
      if ((await next())['ok'] === true) return;
      throw usageError(`${name as string} said no: the codes weren't the same, or it changed its mind`);
    };
    await Promise.all([asked(), answered()]);
    return name as string;
  };
  try {
    return await withAbort(inTime(work(), PEOPLE_MS), signal, 'agreeing with the other page');
  } catch (error) {
    channel.close();
    throw error;
  }
}
