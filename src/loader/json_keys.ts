/**
 * The first key that an object of this JSON text holds twice, or undefined. JSON.parse keeps the last and says nothing.
 * The text must be valid JSON: that is what lets this look at brackets and strings only.
 */
export function duplicateKey(json: string): string | undefined {
  const objects: (Set<string> | undefined)[] = []; // undefined: an array
  for (let at = 0; at < json.length; at++) {
    switch (json.charCodeAt(at)) {
      case 0x7b: // {
        objects.push(new Set());
        break;
      case 0x5b: // [
        objects.push(undefined);
        break;
      case 0x7d: // }
      case 0x5d: // ]
        objects.pop();
        break;
      case 0x22: {
        const end = closingQuote(json, at);
        const keys = objects.at(-1);
        if (keys && isKey(json, end + 1)) {
          const raw = json.slice(at, end + 1);
          const key = raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1);
          if (keys.has(key)) return key;
          keys.add(key);
        }
        at = end;
      }
    }
  }
  return undefined;
}

/** How many objects, keys of them, and values the bytes of a JSON text have, about, and how deep they lie in one another. */
export function jsonSize(json: Uint8Array): { objects: number; keys: number; values: number; depth: number } {
  let [objects, keys, values, depth, most] = [0, 0, 1, 0, 0];
  for (let at = 0; at < json.length; at++) {
    switch (json[at]) {
      case 0x7b: // {
        objects++;
        most = Math.max(most, ++depth);
        break;
      case 0x5b: // [
        most = Math.max(most, ++depth);
        break;
      case 0x7d: // }
      case 0x5d: // ]
        depth--;
        break;
      case 0x2c: // ,
        values++;
        break;
      case 0x3a: // :
        keys++;
        break;
      case 0x22: // "
        for (at++; at < json.length && json[at] !== 0x22; at++) if (json[at] === 0x5c) at++;
    }
  }
  return { objects, keys, values, depth: most };
}

function closingQuote(json: string, open: number): number {
  let at = open + 1;
  while (at < json.length && json.charCodeAt(at) !== 0x22) at += json.charCodeAt(at) === 0x5c ? 2 : 1;
  return at;
}

function isKey(json: string, after: number): boolean {
  let at = after;
  while (/\s/.test(json.charAt(at))) at++;
  return json.charAt(at) === ':';
}
