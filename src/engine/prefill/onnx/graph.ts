import { ProtoWriter } from './proto.js';

/** A value in a graph, by its name. */
export type Value = string;
type ElementType = 'f32' | 'i64';
/** A number, or a name for one that differs from run to run. */
type Dimension = number | string;
type Attribute = number | readonly number[];

const ELEMENT: Readonly<Record<ElementType, number>> = { f32: 1, i64: 7 };
const IR_VERSION = 8;
const OPSET = 17;
const EXTERNAL = 1;
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

  constructor(readonly name: string) {
    this.#graph.text(2, name);
  }

  input(name: Value, type: ElementType, dims: readonly Dimension[]): Value {
    this.#graph.message(11, (info) => writeInfo(info, name, type, dims));
    return name;
  }

  output(value: Value, type: ElementType, dims: readonly Dimension[]): void {
    this.#graph.message(12, (info) => writeInfo(info, value, type, dims));
  }

  /** Weights, kept in a file of their own. */
  weights(name: Value, data: Float32Array<ArrayBuffer>, dims: readonly number[]): Value {
    const path = `${name}.bin`;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    this.#files.push({ path, data: bytes });
    this.#graph.message(5, (tensor) => {
      writeTensor(tensor, name, 'f32', dims);
      const entries = { location: path, offset: '0', length: String(bytes.byteLength) };
      for (const [key, value] of Object.entries(entries)) {
        tensor.message(13, (entry) => entry.text(1, key).text(2, value));
      }
      tensor.int(14, EXTERNAL);
    });
    return name;
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
  op(
    type: string,
    inputs: readonly Value[],
    attributes: Readonly<Record<string, Attribute>> = {},
    name?: Value,
  ): Value {
    return this.split(type, inputs, 1, attributes, name)[0]!;
  }

  /** One operator with several outputs. */
  split(
    type: string,
    inputs: readonly Value[],
    outputs: number,
    attributes: Readonly<Record<string, Attribute>> = {},
    name = `${type}_${this.#count++}`,
  ): Value[] {
    const values = Array.from({ length: outputs }, (_, index) => (index === 0 ? name : `${name}.${index}`));
    this.#graph.message(1, (node) => {
      for (const input of inputs) node.text(1, input);
      for (const value of values) node.text(2, value);
      node.text(3, name).text(4, type);
      for (const [key, value] of Object.entries(attributes)) {
        node.message(5, (attribute) => {
          attribute.text(1, key);
          if (typeof value === 'number') attribute.int(3, value).int(20, INT);
          else {
            for (const each of value) attribute.int(8, each);
            attribute.int(20, INTS);
          }
        });
      }
    });
    return values;
  }

  finish(): OnnxModel {
    const model = new ProtoWriter()
      .int(1, IR_VERSION)
      .text(2, 'splitkv')
      .bytes(7, this.#graph.finish())
      .message(8, (opset) => opset.text(1, '').int(2, OPSET))
      .finish();
    return { model, files: this.#files };
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
