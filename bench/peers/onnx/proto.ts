import { joinBytes } from '../../../src/base/math.js';
/** Protocol buffers' wire format, as far as ONNX models need it. */

const VARINT = 0;
const BYTES = 2;
const FIXED32 = 5;

const utf8 = new TextEncoder();

/** A message under way: fields in the order they were added. */
export class ProtoWriter {
  readonly #pieces: Uint8Array[] = [];
  #length = 0;

  /** Whole numbers from 0 to 2^53 - 1, and -1 (which ONNX uses for axes and dimensions). */
  int(field: number, value: number): this {
    return this.#varint(field * 8 + VARINT).#varint(value);
  }

  float(field: number, value: number): this {
    this.#varint(field * 8 + FIXED32);
    const bytes = new Uint8Array(4);
    new DataView(bytes.buffer).setFloat32(0, value, true);
    return this.#add(bytes);
  }

  text(field: number, value: string): this {
    return this.bytes(field, utf8.encode(value));
  }

  bytes(field: number, value: Uint8Array): this {
    return this.#varint(field * 8 + BYTES)
      .#varint(value.byteLength)
      .#add(value);
  }

  message(field: number, write: (message: ProtoWriter) => void): this {
    const message = new ProtoWriter();
    write(message);
    this.#varint(field * 8 + BYTES).#varint(message.#length);
    for (const piece of message.#pieces) this.#add(piece);
    return this;
  }

  finish(): Uint8Array<ArrayBuffer> {
    return joinBytes(this.#pieces);
  }

  #varint(value: number): this {
    let rest = BigInt.asUintN(64, BigInt(value));
    const bytes: number[] = [];
    do {
      const more = rest > 127n;
      bytes.push(Number(rest & 127n) | (more ? 128 : 0));
      rest >>= 7n;
    } while (rest > 0n);
    return this.#add(Uint8Array.from(bytes));
  }

  #add(piece: Uint8Array): this {
    this.#pieces.push(piece);
    this.#length += piece.byteLength;
    return this;
  }
}
