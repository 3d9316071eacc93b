import { internalError, type SplitkvError, usageError } from '../base/errors.js';
import { nth, sum } from '../base/lists.js';
import type { Exchange, Region, Transfer } from './communicator.js';
import type { RankCommunicator } from './rank_communicator.js';

type Links = Pick<RankCommunicator, 'rank' | 'worldSize' | 'device' | 'localPeers'>;

/** A transfer that carries bytes. */
export interface Message {
  readonly label: string;
  readonly peer: number;
  readonly regions: readonly Region[];
  readonly size: number;
}

/** An exchange, checked, and sorted by the links its messages take. Made once for each `Exchange` object. */
export interface ExchangePlan {
  readonly label: string;
  readonly channel: number;
  /** From the rank to itself: the k-th send is the k-th receive. */
  readonly own: readonly { readonly from: Message; readonly to: Message }[];
  /** Between ranks on one device. */
  readonly localSends: readonly Message[];
  readonly localReceives: readonly Message[];
  /** Through the host: `staged[i]` starts at its offset of one staging buffer. */
  readonly staged: readonly (Omit<Message, 'peer'> & { readonly offset: number })[];
  readonly stagedBytes: number;
  /** Where each lies in the staging buffer; messages with the same regions share their bytes. */
  readonly remoteSends: readonly { readonly peer: number; readonly offset: number; readonly size: number }[];
  readonly remoteReceives: readonly Message[];
  /** To and from other ranks. */
  readonly messages: number;
  readonly bytesSent: number;
  readonly bytesReceived: number;
}

/** @throws SplitkvError `internal` for a peer or region that can't be, naming the exchange. */
export function planExchange(exchange: Exchange, links: Links): ExchangePlan {
  const { label, channel = 0 } = exchange;
  const isOwn = ({ peer }: Message): boolean => peer === links.rank;
  const isLocal = ({ peer }: Message): boolean => links.localPeers.has(peer);
  const isRemote = (message: Message): boolean => !isOwn(message) && !isLocal(message);
  const messages = (verb: 'send' | 'receive'): Message[] =>
    exchange[`${verb}s`].map((each) => checkTransfer(label, verb, each, links)).filter(({ size }) => size > 0);
  const [sends, receives] = [messages('send'), messages('receive')];
  const [toSelf, fromSelf] = [sends.filter(isOwn), receives.filter(isOwn)];
  if (toSelf.length !== fromSelf.length) {
    throw internalError(
      `${label}: rank ${links.rank} sends itself ${toSelf.length} messages and receives ${fromSelf.length} of them; list each on both sides`,
    );
  }
  const own = toSelf.map((from, index) => {
    const to = nth(fromSelf, index);
    if (from.size !== to.size) throw sizeMismatch(label, from.size, links.rank, to.size, links.rank);
    return { from, to };
  });

  const staged: (Message & { offset: number })[] = [];
  let stagedBytes = 0;
  const remoteSends = sends.filter(isRemote).map((message) => {
    let place = staged.find((other) => sameRegions(other.regions, message.regions));
    if (!place) {
      place = { ...message, offset: stagedBytes };
      staged.push(place);
      stagedBytes += message.size;
    }
    return { peer: message.peer, offset: place.offset, size: message.size };
  });
  const bytesOf = (all: readonly Message[]): number => sum(all.filter((one) => !isOwn(one)).map(({ size }) => size));
  return {
    label,
    channel,
    own,
    localSends: sends.filter(isLocal),
    localReceives: receives.filter(isLocal),
    staged,
    stagedBytes,
    remoteSends,
    remoteReceives: receives.filter(isRemote),
    messages: sends.length - own.length,
    bytesSent: bytesOf(sends),
    bytesReceived: bytesOf(receives),
  };
}

export function sizeMismatch(label: string, sent: number, from: number, expected: number, to: number): SplitkvError {
  return internalError(
    `${label}: rank ${from} sends ${sent} bytes where rank ${to} expects ${expected}; the ranks' exchanges don't match`,
  );
}

function checkTransfer(
  label: string,
  verb: 'send' | 'receive',
  { peer, regions }: Transfer,
  { rank, worldSize, device }: Links,
): Message {
  const where = `${label}: rank ${rank} ${verb}s ${verb === 'send' ? 'to' : 'from'} rank ${peer}`;
  if (!Number.isInteger(peer) || peer < 0 || peer >= worldSize) {
    throw usageError(`${where}, but there are ranks 0 to ${worldSize - 1}`);
  }
  let size = 0;
  for (const region of regions) {
    const { buffer, offset, size: bytes } = region;
    if (buffer.device !== device) throw usageError(`${where}: buffer '${buffer.label}' is another device's`);
    const aligned = offset % 4 === 0 && bytes % 4 === 0;
    if (!aligned || offset < 0 || bytes < 0 || offset + bytes > buffer.size) {
      throw usageError(
        `${where}: ${bytes} bytes at ${offset} of '${buffer.label}' (${buffer.size} bytes); ` +
          'offset and size must be multiples of 4 inside the buffer',
      );
    }
    size += bytes;
  }
  return { label, peer, regions: regions.filter((region) => region.size > 0), size };
}

function sameRegions(a: readonly Region[], b: readonly Region[]): boolean {
  const isAt = (i: number, { buffer, offset, size }: Region): boolean =>
    b[i]?.buffer === buffer && b[i].offset === offset && b[i].size === size;
  return a === b || (a.length === b.length && a.every((region, i) => isAt(i, region)));
}
