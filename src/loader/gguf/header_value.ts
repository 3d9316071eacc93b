import { formatError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import type { HeaderCursor } from './header_cursor.js';

/** A metadata value. 64-bit integers are numbers, exact up to 2^53. */
export type GgufValue = string | number | boolean | readonly GgufValue[];

const STRING = 8;
const ARRAY = 9;
/** Lists of lists this deep are nobody's metadata. */
const MAX_DEPTH = 4;

/** Values of fixed size, by their number in the file. */
const scalars: Readonly<Record<number, { bytes: number; read: (view: DataView) => number | boolean }>> = {
  0: { bytes: 1, read: (view) => view.getUint8(0) },
  1: { bytes: 1, read: (view) => view.getInt8(0) },
  2: { bytes: 2, read: (view) => view.getUint16(0, true) },
  3: { bytes: 2, read: (view) => view.getInt16(0, true) },
  4: { bytes: 4, read: (view) => view.getUint32(0, true) },
  5: { bytes: 4, read: (view) => view.getInt32(0, true) },
  6: { bytes: 4, read: (view) => view.getFloat32(0, true) },
  7: { bytes: 1, read: (view) => view.getUint8(0) !== 0 },
  10: { bytes: 8, read: (view) => Number(view.getBigUint64(0, true)) },
  11: { bytes: 8, read: (view) => Number(view.getBigInt64(0, true)) },
  12: { bytes: 8, read: (view) => view.getFloat64(0, true) },
};

/** Reads a type and a value of it; `key` is for messages. Throws `format`. */
export async function readValue(cursor: HeaderCursor, key: string): Promise<GgufValue> {
  await cursor.need(4);
  return readTyped(cursor, key, cursor.u32(), 0);
}

async function readTyped(cursor: HeaderCursor, key: string, type: number, depth: number): Promise<GgufValue> {
  if (type === STRING) return cursor.string();
  if (type === ARRAY && depth < MAX_DEPTH) return readArray(cursor, key, depth);
  const { bytes, read } = scalarOf(cursor, key, type);
  await cursor.need(bytes);
  return read(cursor.take(bytes));
}

async function readArray(cursor: HeaderCursor, key: string, depth: number): Promise<GgufValue> {
  await cursor.need(12);
  const type = cursor.u32();
  const length = cursor.u64();
  const smallest = type === STRING ? 8 : type === ARRAY ? 12 : scalarOf(cursor, key, type).bytes;
  if (length * smallest > cursor.left) {
    throw formatError(
      `${cursor.what}: ${show(key)} claims ${length} values, more than the file has room for; is it truncated?`,
    );
  }
  cursor.count(length);
  const values: GgufValue[] = [];
  if (type === STRING) {
    for (let i = 0; i < length; i++) values.push(cursor.stringNow() ?? (await cursor.string()));
    return values;
  }
  if (type === ARRAY) {
    for (let i = 0; i < length; i++) values.push(await readTyped(cursor, key, type, depth + 1));
    return values;
  }
  const { bytes, read } = scalarOf(cursor, key, type);
  for (let i = 0; i < length; i++) {
    if (!cursor.has(bytes)) await cursor.need(bytes);
    values.push(read(cursor.take(bytes)));
  }
  return values;
}

function scalarOf(cursor: HeaderCursor, key: string, type: number) {
  const scalar = scalars[type];
  if (scalar) return scalar;
  throw formatError(
    `${cursor.what}: the metadata key ${show(key)} has a value of type ${type}; expected 0 to 12, lists at most ${MAX_DEPTH} deep`,
  );
}
