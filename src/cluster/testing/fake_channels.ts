import { PeerBus, type PeerChannel } from '../peers/bus.js';

/** One end of a data channel that lies in memory: what is sent waits until `flow`, or comes by itself where that is true. */
export class FakeChannel implements PeerChannel {
  binaryType: BinaryType = 'blob';
  bufferedAmount = 0;
  bufferedAmountLowThreshold = 0;
  onbufferedamountlow: PeerChannel['onbufferedamountlow'] = null;
  onclose: PeerChannel['onclose'] = null;
  onmessage: PeerChannel['onmessage'] = null;
  /** The largest that it was. */
  mostBuffered = 0;
  readonly sent: ArrayBuffer[] = [];
  isOpen = true;
  #other: FakeChannel | undefined;

  constructor(private readonly flows: boolean) {}

  static pair(flows = true): readonly [FakeChannel, FakeChannel] {
    const pair = [new FakeChannel(flows), new FakeChannel(flows)] as const;
    pair[0].#other = pair[1];
    pair[1].#other = pair[0];
    return pair;
  }

  send(data: unknown): void {
    if (!this.isOpen) throw new Error('the channel is closed');
    const { buffer, byteOffset, byteLength } = data as Uint8Array<ArrayBuffer>;
    this.sent.push(buffer.slice(byteOffset, byteOffset + byteLength));
    this.bufferedAmount += byteLength;
    this.mostBuffered = Math.max(this.mostBuffered, this.bufferedAmount);
    if (this.flows) setImmediate(() => this.flow());
  }

  /** Takes all that waits to the other end. */
  flow(): void {
    for (const data of this.sent.splice(0)) {
      const before = this.bufferedAmount;
      this.bufferedAmount -= data.byteLength;
      if (this.#other!.isOpen) this.#other!.onmessage?.call(undefined as never, { data } as MessageEvent);
      const low = this.bufferedAmountLowThreshold;
      if (before > low && this.bufferedAmount <= low) this.onbufferedamountlow?.call(undefined as never, new Event(''));
    }
  }

  /** What was sent before still comes. */
  close(): void {
    if (!this.isOpen) return;
    this.flow();
    for (const end of [this, this.#other!]) {
      end.isOpen = false;
      setImmediate(() => end.onclose?.call(undefined as never, new Event('close')));
    }
  }
}

export const peersOf = (bus: PeerBus) => ({ peers: { connection: bus } });

/** A hub, its members, and each member's channel at the hub and at itself. */
export function busesOf(members: number, flows = true) {
  const hub = new PeerBus(true);
  const channels = Array.from({ length: members }, () => FakeChannel.pair(flows));
  const leaves = channels.map(([near, far]) => {
    const leaf = new PeerBus(false);
    hub.join(near);
    leaf.join(far);
    return leaf;
  });
  return { hub, leaves, channels };
}
