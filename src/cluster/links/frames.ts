import { joinBytes } from '../../base/math.js';
import { formatError } from '../../base/errors.js';

/**
 * What goes over a link, one frame a NATS message: 24 bytes that say what it is, then the bytes of a piece.
 *
 *     byte 0   version (1)
 *     byte 1   type: 0 piece, 1 beat, 2 end
 *     8 to 15  float64: of a piece and of an end its number, from 1; of a beat the number of the last piece that was sent
 *     16 to 23 float64: of a piece the bytes of its message, of a beat the number of the last piece that was received
 *
 * A message's pieces come one after another. Little-endian.
 */
export type Frame =
  | { readonly type: 'piece'; readonly number: number; readonly total: number; readonly bytes: Uint8Array }
  | { readonly type: 'beat'; readonly sent: number; readonly received: number }
  | { readonly type: 'end' };

export const HEADER_BYTES = 24;
/** No message between ranks is as large: a slice's whole cache, handed over, is the largest. */
export const MAX_MESSAGE = 2 ** 31;
const VERSION = 1;
const TYPES = ['piece', 'beat', 'end'] as const;

export function frameOf(frame: Frame): Uint8Array {
  const bytes = frame.type === 'piece' ? frame.bytes : undefined;
  const out = new Uint8Array(HEADER_BYTES + (bytes?.byteLength ?? 0));
  const view = new DataView(out.buffer);
  view.setUint8(0, VERSION);
  view.setUint8(1, TYPES.indexOf(frame.type));
  if (frame.type === 'piece') {
    view.setFloat64(8, frame.number, true);
    view.setFloat64(16, frame.total, true);
  } else if (frame.type === 'beat') {
    view.setFloat64(8, frame.sent, true);
    view.setFloat64(16, frame.received, true);
  }
  if (bytes) out.set(bytes, HEADER_BYTES);
  return out;
}

/** @throws SplitkvError `format` for bytes that are no frame */
export function readFrame(data: Uint8Array): Frame {
  if (data.byteLength < HEADER_BYTES)
    throw formatError(`a frame of ${data.byteLength} bytes: ${HEADER_BYTES} at least`);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (view.getUint8(0) !== VERSION) throw formatError(`a frame of version ${view.getUint8(0)}: expected ${VERSION}`);
  const type = TYPES[view.getUint8(1)];
  const first = view.getFloat64(8, true);
  const second = view.getFloat64(16, true);
  if (type === undefined || !isCount(first) || !isCount(second)) throw formatError('a frame whose head is no head');
  if (type !== 'piece' && data.byteLength > HEADER_BYTES) throw formatError(`a ${type} with bytes behind it`);
  switch (type) {
    case 'piece': {
      const bytes = data.subarray(HEADER_BYTES);
      if (second > MAX_MESSAGE || bytes.byteLength > second || bytes.byteLength === 0) {
        throw formatError(`a piece of ${bytes.byteLength} bytes of a message of ${second}`);
      }
      return { type, number: first, total: second, bytes };
    }
    case 'beat':
      return { type, sent: first, received: second };
    case 'end':
      return { type };
  }
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

/** Puts pieces together. Takes no more memory than the pieces that came. */
export class Assembler {
  #parts: Uint8Array[] = [];
  #total = 0;
  #bytes = 0;

  /** Of a message that isn't whole yet. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A message, when this piece is its last one. @throws SplitkvError `format` for a piece of another message */
  take({ total, bytes }: Extract<Frame, { type: 'piece' }>): Uint8Array | undefined {
    if (this.#bytes > 0 && total !== this.#total) {
      throw formatError(`a piece of a message of ${total} bytes among those of one of ${this.#total}`);
    }
    if (this.#bytes + bytes.byteLength > total) throw formatError(`pieces of more than their message's ${total} bytes`);
    this.#total = total;
    // What NATS hands out lies in a buffer that it goes on using.
    this.#parts.push(bytes.slice());
    this.#bytes += bytes.byteLength;
    if (this.#bytes < total) return undefined;
    const parts = this.#parts;
    this.#parts = [];
    this.#bytes = 0;
    return parts.length === 1 ? parts[0] : joinBytes(parts);
  }
}
