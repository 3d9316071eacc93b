/** 'topP' → 'top_p', by its type. */
export type Snake<Name extends string> = Parted<Name, '_'>;
/** 'topP' → 'top-p', by its type. */
export type Dashed<Name extends string> = Parted<Name, '-'>;

type Parted<Name extends string, By extends string> = Name extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `${By}${Lowercase<Head>}`}${Parted<Tail, By>}`
  : Name;

const parted = (name: string, by: string): string => name.replace(/[A-Z]/g, (letter) => by + letter.toLowerCase());

/** 'topP' → 'top_p', as JSON has it. */
export const snake = <Name extends string>(name: Name): Snake<Name> => parted(name, '_') as Snake<Name>;
/** 'topP' → 'top-p', as a command line and markup have it. */
export const dashed = <Name extends string>(name: Name): Dashed<Name> => parted(name, '-') as Dashed<Name>;
/** 'top-p' → 'topP'. */
export const camel = (name: string): string => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
/** Some values by their names as JSON has them: `{ topP: 1 }` gives `{ top_p: 1 }`. */
export const snakeOf = <Values extends object>(values: Values, ...names: readonly (keyof Values & string)[]): object =>
  Object.fromEntries(names.map((name) => [snake(name), values[name]]));
