import { halfFromFloat } from '../../../shaders/linear/float16.js';
import { ProtoWriter } from './proto.js';

/** A value in a graph, by its name. */
export type Value = string;
export type ElementType = 'f32' | 'f16' | 'u8' | 'i32' | 'i64';
/** A number, or a name for one that differs from run to run. */
type Dimension = number | string;
/** Whole numbers, unless marked. */
type Attribute = number | readonly number[] | { readonly float: number };
type Attributes = Readonly<Record<string, Attribute>>;

const ELEMENT: Readonly<Record<ElementType, number>> = { f32: 1, u8: 2, i32: 6, i64: 7, f16: 10 };
const IR_VERSION = 8;
const OPSET = 17;
/** Operators that ONNX Runtime adds: 'com.microsoft.NAME'. */
const RUNTIME_DOMAIN = 'com.microsoft';
const EXTERNAL = 1;
const FLOAT = 1;
const INT = 2;
const INTS = 7;

/** An ONNX model: its graph, and its weights as files beside it, which have no limit of 2 GB. */
export interface OnnxModel {
  readonly model: Uint8Array<ArrayBuffer>;
  readonly files: readonly { readonly path: string; readonly data: Uint8Array<ArrayBuffer> }[];
}

/** Builds an ONNX graph (onnx.proto3; operators of opset 17). */
export class GraphBuilder {
  readonly #graph = new ProtoWriter();
  readonly #files: { readonly path: string; readonly data: Uint8Array<ArrayBuffer> }[] = [];
  readonly #constants = new Map<string, Value>();
  #count = 0;

  /** @param place where weights are kept: in files of their own, or in the model, which then ends at 2 GB */
  constructor(
    readonly name: string,
    readonly place: 'files' | 'model' = 'files',
  ) {
    this.#graph.text(2, name);
  }

  input(name: Value, type: ElementType, dims: readonly Dimension[]): Value {
    this.#graph.message(11, (info) => writeInfo(info, name, type, dims));
    return name;
  }

  output(value: Value, type: ElementType, dims: readonly Dimension[]): void {
    this.#graph.message(12, (info) => writeInfo(info, value, type, dims));
  }

  /** Weights, row-major. */
  weights(
    name: Value,
    data: Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Uint8Array<ArrayBuffer>,
    dims: readonly number[],
    type: ElementType = 'f32',
  ): Value {
    const path = `${name}.bin`;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (this.place === 'files') this.#files.push({ path, data: bytes });
    this.#graph.message(5, (tensor) => {
      writeTensor(tensor, name, type, dims);
      if (this.place === 'model') {
        tensor.bytes(9, bytes);
        return;
      }
      const entries = { location: path, offset: '0', length: String(bytes.byteLength) };
      for (const [key, value] of Object.entries(entries)) {
        tensor.message(13, (entry) => entry.text(1, key).text(2, value));
      }
      tensor.int(14, EXTERNAL);
    });
    return name;
  }

  /** Weights of a float type. */
  floats(name: Value, data: Float32Array<ArrayBuffer>, dims: readonly number[], type: 'f32' | 'f16'): Value {
    return this.weights(name, type === 'f16' ? Uint16Array.from(data, halfFromFloat) : data, dims, type);
  }

  /** A list of i64; the same list is one constant. */
  integers(values: readonly number[]): Value {
    return this.#constant('i64', values, [values.length], BigInt64Array.from(values, BigInt));
  }

  /** One f32. */
  scalar(value: number): Value {
    return this.#constant('f32', [value], [], Float32Array.of(value));
  }

  #constant(type: ElementType, values: readonly number[], dims: readonly number[], data: ArrayBufferView): Value {
    const name = `${type}:${values.join(',')}`;
    if (!this.#constants.has(name)) {
      this.#constants.set(name, name);
      this.#graph.message(5, (tensor) => {
        writeTensor(tensor, name, type, dims);
        tensor.bytes(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      });
    }
    return name;
  }

  /** One operator with one output; `name` names it, where its name matters. */
  op(type: string, inputs: readonly Value[], attributes: Attributes = {}, name?: Value): Value {
    return this.split(type, inputs, 1, attributes, name)[0]!;
  }

  cast(value: Value, to: ElementType, name?: Value): Value {
    return this.op('Cast', [value], { to: ELEMENT[to] }, name);
  }

  /** One operator with several outputs. */
  split(
    type: string,
    inputs: readonly Value[],
    outputs: number,
    attributes: Attributes = {},
    name = this.#nameOf(type),
  ): Value[] {
    const values = Array.from({ length: outputs }, (_, index) => (index === 0 ? name : `${name}.${index}`));
    this.node(type, inputs, values, attributes, name);
    return values;
  }

  /** One operator whose inputs and outputs have names of their own; an empty one stands for an optional value left out. */
  node(
    type: string,
    inputs: readonly Value[],
    outputs: readonly Value[],
    attributes: Attributes = {},
    name = this.#nameOf(type),
  ): void {
    this.#graph.message(1, (node) => {
      for (const input of inputs) node.text(1, input);
      for (const value of outputs) node.text(2, value);
      node.text(3, name);
      const domain = type.startsWith(`${RUNTIME_DOMAIN}.`) ? RUNTIME_DOMAIN : undefined;
      node.text(4, domain === undefined ? type : type.slice(domain.length + 1));
      for (const [key, value] of Object.entries(attributes)) {
        node.message(5, (attribute) => writeAttribute(attribute.text(1, key), value));
      }
      if (domain !== undefined) node.text(7, domain);
    });
  }

  #nameOf(type: string): Value {
    return `${type}_${this.#count++}`;
  }

  finish(): OnnxModel {
    const model = new ProtoWriter()
      .int(1, IR_VERSION)
      .text(2, 'splitkv')
      .bytes(7, this.#graph.finish())
      .message(8, (opset) => opset.text(1, '').int(2, OPSET))
      .message(8, (opset) => opset.text(1, RUNTIME_DOMAIN).int(2, 1))
      .finish();
    return { model, files: this.#files };
  }
}

function writeAttribute(attribute: ProtoWriter, value: Attribute): void {
  if (typeof value === 'number') attribute.int(3, value).int(20, INT);
  else if ('float' in value) attribute.float(2, value.float).int(20, FLOAT);
  else {
    for (const each of value) attribute.int(8, each);
    attribute.int(20, INTS);
  }
}

function writeTensor(tensor: ProtoWriter, name: Value, type: ElementType, dims: readonly number[]): void {
  for (const dim of dims) tensor.int(1, dim);
  tensor.int(2, ELEMENT[type]).text(8, name);
}

function writeInfo(info: ProtoWriter, name: Value, type: ElementType, dims: readonly Dimension[]): void {
  info.text(1, name).message(2, (kind) =>
    kind.message(1, (tensor) => {
      tensor.int(1, ELEMENT[type]).message(2, (shape) => {
        for (const dim of dims) {
          shape.message(1, (entry) => (typeof dim === 'number' ? entry.int(1, dim) : entry.text(2, dim)));
        }
      });
    }),
  );
}

/** Of rows [outFeatures][inFeatures]: [inFeatures][outFeatures], as MatMul takes them. */
export function transposed(rows: Float32Array, outFeatures: number, inFeatures: number): Float32Array<ArrayBuffer> {
  const out = new Float32Array(rows.length);
  for (let row = 0; row < outFeatures; row++) {
    for (let k = 0; k < inFeatures; k++) out[k * outFeatures + row] = rows[row * inFeatures + k]!;
  }
  return out;
}
