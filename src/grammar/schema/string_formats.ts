/**
 * Formats of strings that are held to, as expressions: each is within what RFC 3339, 4122, 5321, 2673, 4291, 3986 and 1123 allow. Other
 * formats are annotations, as JSON Schema has it.
 */
const HOUR = '(?:[01][0-9]|2[0-3])';
const YEAR_29 = '(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)';
const DATE =
  `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))` +
  `|${YEAR_29}-02-29)`;
const TIME = `${HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]${HOUR}:[0-5][0-9])`;
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?';
const HOST = `${LABEL}(?:\\.${LABEL}){0,8}`;
const BYTE = '(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const IPV4 = `${BYTE}(?:\\.${BYTE}){3}`;
const H16 = '[0-9A-Fa-f]{1,4}';
const IPV6 = [
  `(?:${H16}:){7}${H16}`,
  ...Array.from({ length: 7 }, (_, before) => {
    const left = before === 0 ? '' : `${H16}(?::${H16}){${before - 1}}`;
    const most = 7 - before - 1;
    return `${left}::(?:${H16}(?::${H16}){0,${most}})?`;
  }),
].join('|');
const PART = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const URI =
  `[A-Za-z][A-Za-z0-9+.-]*:(?://${HOST}(?::[0-9]{1,5})?(?:/${PART}*)*|${PART}+(?:/${PART}*)*)` +
  `(?:\\?(?:${PART}|[/?])*)?(?:#(?:${PART}|[/?])*)?`;
const TIME_SPAN = 'T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)';
const DURATION = `P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:${TIME_SPAN})?|${TIME_SPAN})`;

export const STRING_FORMATS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    date: DATE,
    time: TIME,
    'date-time': `${DATE}T${TIME}`,
    duration: DURATION,
    uuid: '[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}',
    email: `[A-Za-z0-9!#$%&'*+/=?^_\`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_\`{|}~-]+)*@${LABEL}(?:\\.${LABEL}){1,8}`,
    hostname: HOST,
    ipv4: IPV4,
    ipv6: IPV6,
    uri: URI,
    'json-pointer': '(?:/(?:[^~/]|~0|~1)*)*',
  }),
);
