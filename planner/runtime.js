/* Python's numbers, containers and texts, as far as translated code uses them (translate.py beside it): an int is a BigInt,
   a float a Number, a dict a Map, a list an Array, a tuple a frozen one, None null. What Python refuses is refused here too;
   what Python does and this does not is an error of its own, which no except of translated code catches. */
class ValueError extends Error {}
const $ValueError = (text) => new ValueError(text);
const $raise = (what) => { throw new Error(what); };
const $unknown = (what) => $raise(`${what}: not translated; write it plainer`);

/* Numbers */
class $Number10 { // Decimal: digits · 10 ** power
  constructor(digits, power) { Object.assign(this, { digits, power }); }
}
const $refuse = (what) => { throw new TypeError(what); };
const $number = (x) => (typeof x === "boolean" ? BigInt(x) : typeof x === "bigint" || typeof x === "number" ? x : $refuse(`${$repr(x)} is no number`));
const $real = (x) => (typeof x === "bigint" && !Number.isFinite(Number(x)) ? $raise("int too large for a float") : Number(x));
const $mixed = (f) => (a, b) => {
  a = $number(a);
  b = $number(b);
  return typeof a === typeof b ? f(a, b) : f($real(a), $real(b));
};
const $plus = $mixed((a, b) => a + b), $minus = $mixed((a, b) => a - b), $times = $mixed((a, b) => a * b);
const $ints = (a, b) => ([a, b] = [$number(a), $number(b)]).every((x) => typeof x === "bigint") ? [a, b] : $refuse("for ints alone");
const $big = (a, b) => typeof a === "bigint" && typeof b === "bigint"; // by far the most, so asked first
function $add(a, b, c, d, e) {
  if (c !== undefined) return $add($add(a, b), c, d, e);
  if ($big(a, b)) return a + b;
  if (typeof a === "string" && typeof b === "string") return a + b;
  return $alike(a, b) ? $as(a, [...a, ...b]) : $plus(a, b);
}
const $sub = (a, b) => ($big(a, b) ? a - b : a instanceof Set && b instanceof Set ? new Set([...a].filter((x) => !b.has(x))) : $minus(a, b));
function $mul(a, b, c, d, e) {
  if (c !== undefined) return $mul($mul(a, b), c, d, e);
  if ($big(a, b)) return a * b;
  if (!(a instanceof $Number10)) return $times(a, b);
  let digits = a.digits * b, power = a.power;
  const over = digits.toString().length - 28; // Decimal's
  if (over > 0) [digits, power] = [$nearest(digits, 10n ** BigInt(over)), power + over];
  return new $Number10(digits, power);
}
const $repeat = (list, times) => Array(Math.max(0, $int_at(times))).fill(list).flat();
const $neg = (a) => -$number(a);
const $divmod = (a, b) => $tupled([$floordiv(a, b), $mod(a, b)]);
const $gcd = (a, b) => (([a, b]) => { for (; b; [a, b] = [b, a % b]); return a < 0n ? -a : a; })($ints(a, b));
function $floordiv(a, b) {
  if (!$big(a, b)) [a, b] = $ints(a, b);
  if (b === 0n) $raise("division by zero");
  const q = a / b;
  return a < 0n !== b < 0n && q * b !== a ? q - 1n : q;
}
function $mod(a, b) {
  if (a instanceof $Number10) return a.power < 0 ? new $Number10(a.digits % (b * 10n ** BigInt(-a.power)), a.power) : new $Number10(0n, 0);
  return $sub(a, $times($floordiv(a, b), b));
}
const $pow = (a, b) => (typeof a === "number" ? a ** Number(b) : (([a, b]) => (b < 0n ? $unknown("a power below 0") : a ** b))($ints(a, b)));
const $union = (a, b) => (a instanceof Map && b instanceof Map ? $iunion(new Map(a), b) : $refuse("| is for dicts"));
const $bitand = (a, b) => (([a, b]) => a & b)($ints(a, b));
const $shift = (a, b) => (([a, b]) => (b < 0n ? $raise("a shift below 0") : a << b))($ints(a, b));
/* What += and |= do to a list and a dict, each name of which sees it */
const $iadd = (a, b) => ($is_list(a) ? (a.push(...$each(b)), a) : $add(a, b));
const $iunion = (a, b) => (a instanceof Map && b instanceof Map ? (b.forEach((value, key) => a.set(key, value)), a) : a instanceof Set && b instanceof Set ? (b.forEach((x) => a.add(x)), a) : $union(a, b));
const $isub = (a, b) => (a instanceof Set ? $unknown("-= of sets") : $sub(a, b));
const $EXACT = 2n ** 53n;
const $div = (a, b) => {
  if ($number(b) == 0) $raise("division by zero");
  const found = $quotient(a, b);
  return Number.isFinite(found) || !$big(a, b) ? found : $raise("int too large for a float");
};
const $quotient = $mixed((a, b) => {
  const size = (x) => (x < 0n ? -x : x);
  if (typeof a === "number" || (size(a) <= $EXACT && size(b) <= $EXACT)) return Number(a) / Number(b);
  const hex = (x) => size(x).toString(16).length; // the float nearest to the quotient, from 60 bits of it and whether more follow
  const shift = 64 + 4 * (hex(b) - hex(a)), up = BigInt(Math.max(shift, 0)), down = BigInt(Math.max(-shift, 0));
  const [n, d] = [size(a) << up, size(b) << down];
  return (a < 0n === b < 0n ? 1 : -1) * Number((n / d) | BigInt(n % d !== 0n)) * 2 ** -shift;
});
const $nearest = (n, d) => { // of n / d, both above 0, halves to even
  const q = n / d, twice = (n % d) * 2n;
  return q + BigInt(twice > d || (twice === d && q % 2n === 1n));
};
const $scaled = (x, digits) => { // a float above 0 times 10 ** digits, to the nearest int
  let d = 1n;
  for (; !Number.isInteger(x); x *= 2) d *= 2n;
  const power = 10n ** BigInt(Math.abs(digits));
  return digits < 0 ? $nearest(BigInt(x), d * power) : $nearest(BigInt(x) * power, d);
};
const $ODD = /[^\x00-\x7f]|_|^\s*[+-]?(?:inf|nan)/i; // how Python may write a number and nobody here does
const $written = (x, pattern, kind) => (pattern.test(x) ? x.trim() : $ODD.test(x) && /[\p{Nd}in]/iu.test(x) ? $unknown(`${kind}(${$repr(x)})`) : $no(`${$repr(x)} is no ${kind}`));
const $no = (what) => { throw new ValueError(what); };
const $int = (x) => {
  if (x instanceof $Number10) return x.power < 0 ? x.digits / 10n ** BigInt(-x.power) : x.digits * 10n ** BigInt(x.power);
  if (typeof x === "string") return BigInt($written(x, /^\s*[+-]?[0-9]+\s*$/, "int").replace(/^\+/, "")); // BigInt takes "" and "0x1"
  if (typeof x !== "number") return BigInt($number(x));
  return Number.isNaN(x) ? $no("NaN is no int") : Number.isFinite(x) ? BigInt(Math.trunc(x)) : $raise("infinity is no int");
};
const $float = (x) => {
  if (x instanceof $Number10) return Number(`${x.digits}e${x.power}`);
  return typeof x === "string" ? Number($written(x, /^\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?\s*$/i, "float")) : $real($number(x));
};
const $bool = (x) => $t(x);
const $abs = (x) => ($lt(x, 0n) ? $neg(x) : x);
const $round = (x) => (typeof $number(x) === "bigint" ? $number(x) : !Number.isFinite(x) ? $int(x) : x < 0 ? -$scaled(-x, 0) : $scaled(x, 0));
function $sum(all) {
  let total = 0n, floats = 0;
  for (const x of $each(all)) {
    if (typeof total === "number" && ++floats > 1) $unknown("a sum of more than two floats, which Python adds in one way up to 3.11 and another since");
    total = $add(total, x);
  }
  return total;
}
function $Decimal(text) {
  if (typeof text !== "string") $unknown("a Decimal of a number");
  const [, whole, part = "", power = "0"] = /^(\d*)\.?(\d*)(?:e(.*))?$/i.exec(text);
  return new $Number10(BigInt(whole + part), Number(power) - part.length);
}

/* Comparisons, and what counts as true */
const $t = (x) => (x == null ? false : x instanceof Map || x instanceof Set ? x.size > 0 : x instanceof $View ? x.count() > 0 : Array.isArray(x) ? x.length > 0 : x instanceof $Number10 ? x.digits !== 0n : !!x);
const $or = (a, b) => ($t(a) ? a : b());
const $and = (a, b) => ($t(a) ? b() : a);
const $order = (a, b) => { // negative, 0 or positive; NaN where nothing holds
  if ($big(a, b) || (typeof a === "number" && typeof b === "number")) return a < b ? -1 : a > b ? 1 : a === b ? 0 : NaN;
  if ($alike(a, b)) {
    const n = a.findIndex((x, at) => at >= b.length || !$eq(x, b[at]));
    return n < 0 ? a.length - b.length : n < b.length ? $order(a[n], b[n]) : 1;
  }
  if (typeof a === "string" && typeof b === "string" && $ASTRAL.test(a + b)) return $order(...[a, b].map((text) => [...text].map((c) => c.codePointAt(0))));
  if (a instanceof $Number10 || b instanceof $Number10) {
    const [x, y] = [a, b].map((n) => (n instanceof $Number10 ? n : new $Number10($int(n), 0))), least = Math.min(x.power, y.power);
    [a, b] = [x, y].map((n) => n.digits * 10n ** BigInt(n.power - least));
  }
  if (typeof a !== "string" || typeof b !== "string") [a, b] = [$number(a), $number(b)];
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : NaN;
};
const $lt = (a, b) => ($big(a, b) ? a < b : $order(a, b) < 0), $le = (a, b) => ($big(a, b) ? a <= b : $order(a, b) <= 0);
const $gt = (a, b) => ($big(a, b) ? a > b : $order(a, b) > 0), $ge = (a, b) => ($big(a, b) ? a >= b : $order(a, b) >= 0);
function $eq(a, b) {
  if ($big(a, b)) return a === b;
  if (a === b || (a == null && b == null)) return true;
  if (a == null || b == null || typeof a === "string" || typeof b === "string") return false;
  if (a instanceof $Number10 || b instanceof $Number10) return $order(a, b) === 0;
  if (typeof a !== "object" || typeof b !== "object") return typeof a !== "object" && typeof b !== "object" && a == b;
  if (Array.isArray(a) && Array.isArray(b)) return $alike(a, b) && a.length === b.length && a.every((each, n) => $eq(each, b[n]));
  if (a instanceof Map && b instanceof Map) return a.size === b.size && [...a].every(([key, value]) => b.has(key) && $eq(value, b.get(key)));
  if (a instanceof Set && b instanceof Set) return a.size === b.size && [...a].every((x) => b.has(x));
  if ($is_record(a) && a.constructor === b.constructor) return Object.keys(a).every((name) => $eq($read(a[name]), b[name]));
  const plain = (x) => x instanceof Map || x instanceof Set || Array.isArray(x);
  return plain(a) && plain(b) ? false : $unknown("whether records, ranges or iterators of two kinds are equal");
}
function $in(x, all) {
  if (typeof all === "string") return typeof x === "string" ? all.includes(x) : $refuse(`${$repr(x)} is no text`);
  if (all instanceof Map || all instanceof Set) return all.has($key(x));
  for (const each of $each(all)) if ($eq(each, x)) return true;
  return false;
}

/* Containers */
const $tupled = Object.freeze;
const $is_list = (x) => Array.isArray(x) && !Object.isFrozen(x), $is_tuple = (x) => Array.isArray(x) && Object.isFrozen(x);
const $alike = (a, b) => Array.isArray(a) && Array.isArray(b) && Object.isFrozen(a) === Object.isFrozen(b);
const $as = (a, made) => ($is_tuple(a) ? $tupled(made) : made);
const $ASTRAL = /[\ud800-\udfff]/;
const $chars = (text) => ($ASTRAL.test(text) ? [...text] : text);
class $View { // a range; a dict's keys, values and items
  constructor(iterate, size) { Object.assign(this, { [Symbol.iterator]: iterate, count: size }); }
}
const $each = (all) => (all instanceof Map ? all.keys() : all?.[Symbol.iterator] ? all : $refuse(`${$repr(all)} has no items`));
const $list = (all = []) => [...$each(all)];
const $tuple = (all = []) => $tupled($list(all));
const $ONES = new Map(), $one_of = (text, x) => $ONES.get(text) ?? ($ONES.set(text, x), x); // as keys equal tuples are one, and equal records
function $key(x) {
  if (typeof x === "string" || typeof x === "bigint" || x === null) return x;
  if ($is_record(x)) return $one_of(`${x.constructor.title}${$all_of(x)}`, x);
  if (!$is_tuple(x)) return Array.isArray(x) || x instanceof Map ? $refuse(`unhashable: ${$repr(x)}`) : $unknown(`${$repr(x)} as a key`);
  return $one_of($repr($tupled(x.map($key))), x);
}
const $dict = (pairs = []) => (pairs instanceof Map ? new Map(pairs) : new Map(Array.from($each(pairs), (pair) => (([key, value]) => [$key(key), value])($unpack(pair, 2)))));
const $d = (all) => new Map(Object.entries(all));
const $same = (a, b) => ($is_record(a) && $is_record(b) ? a.constructor === b.constructor && Object.keys(a).every((name) => $same(a[name], b[name])) : $eq(a, b)); // as dataclasses
const $Counter = (all) => {
  const of = new Map();
  for (const x of $each(all)) { // equal records are one, as equal tuples
    const key = [...of.keys()].find((each) => $same(each, x)) ?? x;
    of.set(key, (of.get(key) ?? 0n) + 1n);
  }
  return of;
};
const $set = (all = []) => new Set(Array.from($each(all), $key));
const $int_at = (at) => (typeof at === "bigint" ? Number(at) : $refuse(`${$repr(at)} is no position`));
const $position = (all, at) => ((n) => (n in all ? n : $raise(`no item ${at}`)))($int_at(at) + (at < 0n ? all.length : 0));
function $put(all, key, value) {
  if (all instanceof Map) all.set($key(key), value);
  else if ($is_list(all)) all[$position(all, key)] = value;
  else $refuse(`${$repr(all)} takes no items`);
}
const $dict_fromkeys = (keys, value = null) => new Map(Array.from($each(keys), (key) => [$key(key), value]));
const $len = (all) => BigInt(typeof all === "string" ? $chars(all).length : Array.isArray(all) ? all.length : all instanceof Map || all instanceof Set ? all.size : all instanceof $View ? all.count() : $refuse(`${$repr(all)} has no length`));
function $item(all, at) {
  const there = typeof at === "bigint" && Array.isArray(all) ? all[Number(at)] : null;
  if (there != null) return there; // as mostly
  if (all instanceof Map) {
    const key = $key(at), found = all.get(key);
    return found !== undefined || all.has(key) ? found : $raise(`no ${$repr(at)}`);
  }
  if (typeof all === "string") return ((chars) => chars[$position(Object(chars), at)])($chars(all));
  return Array.isArray(all) ? all[$position(all, at)] ?? null : $unknown("an item of what is no list, tuple, dict or text");
}
function $slice(all, low, high, step) {
  const whole = typeof all === "string" ? $chars(all) : Array.isArray(all) ? all : $refuse(`${$repr(all)} has no slices`);
  const part = whole.slice(low == null ? 0 : $int_at(low), high == null ? undefined : $int_at(high));
  if (typeof all === "string") return step == null ? (typeof part === "string" ? part : part.join("")) : $unknown("a text's step");
  return $as(all, step == null ? part : step > 0n ? part.filter((_, n) => n % Number(step) === 0) : $unknown("a step below 1"));
}
const $unpack = (x, shape) => { // into so many names; in a shape such as [0, 2] the second are two again
  if (Array.isArray(x) && x.length === shape) return x;
  const all = Array.isArray(x) ? x : $is_record(x) ? Object.values(x).map($read) : $list(x);
  if (all.length !== (shape.length ?? shape)) $no(`${all.length} values for ${shape.length ?? shape} names`);
  return shape.length ? all.map((each, n) => (shape[n] ? $unpack(each, shape[n]) : each)) : all;
};
function $unpack_first(x, shape) { // and the others after them
  const all = $list(x), count = shape.length ?? shape;
  return [...$unpack(all.slice(0, count), shape), ...all.slice(count)];
}
function* $unpack_each(all, shape) { for (const x of $each(all)) yield $unpack(x, shape); }
function* $map(all, f, test) { for (const x of all) if (!test || test(x)) yield f(x); }
const $listed = (all, f, test) => { const found = []; for (const x of all) if (!test || test(x)) found.push(f(x)); return found; };
const $mapped = (all, f, test) => { const found = new Map(); for (const x of all) if (!test || test(x)) { const [key, value] = f(x); found.set($key(key), value); } return found; };
const $range = (low, high = null) => {
  if (high === null) [low, high] = [0n, low];
  [low, high] = $ints(low, high);
  return new $View(function* () { for (let n = low; n < high; n++) yield n; }, () => (high > low ? high - low : 0n));
};
const $options = (all) => (all.at(-1)?.constructor === Object ? all.pop() : {});
function* $zip(...all) {
  const { strict } = $options(all), each = all.map((one) => $each(one)[Symbol.iterator]());
  while (each.length) {
    const next = each.map((one) => one.next()), over = next.filter(({ done }) => done);
    if (over.length) return $t(strict) && over.length < next.length && $no("zip of unequal lengths");
    yield $tupled(next.map(({ value }) => value));
  }
}
function* $enumerate(all, start = 0n) { for (const x of $each(all)) yield $tupled([start++, x]); }
const $next = (all, ...other) => (({ done, value }) => (done ? (other.length ? other[0] : $raise("nothing is next")) : value))(all.next ? all.next() : $refuse("no iterator"));
const $any = (all) => { for (const x of $each(all)) if ($t(x)) return true; return false; };
const $all = (all) => { for (const x of $each(all)) if (!$t(x)) return false; return true; };
const $extreme = (sign) => (...all) => {
  if (all.length === 2 && $big(all[0], all[1])) return all[0] < all[1] === sign > 0 ? all[1] : all[0];
  const { key = (x) => x } = $options(all), from = all.length > 1 ? all : $list(all[0]);
  return from.length ? from.reduce((a, b) => (sign * $order(key(b), key(a)) > 0 ? b : a)) : $no("nothing to choose from");
};
const $max = $extreme(1);
const $min = $extreme(-1);
const $sorted = (all, { key = (x) => x } = {}) => $list(all).map((x) => [key(x), x]).sort((a, b) => $order(a[0], b[0])).map(([, x]) => x);
const $str = (x) => (typeof x === "string" ? x : x instanceof Error ? x.message : $repr(x));
const $f = (parts, ...values) => values.reduce((text, x, n) => text + $str(x) + parts[n + 1], parts[0]);
const $Mapping = Map;
const $TYPES = new Map([[$int, (x) => typeof x === "bigint" || typeof x === "boolean"], [$float, (x) => typeof x === "number"], [$str, (x) => typeof x === "string"], [$bool, (x) => typeof x === "boolean"], [$tuple, (x) => ($is_record(x) ? $unknown("whether a record is a tuple") : $is_tuple(x))], [$list, $is_list], [$dict, (x) => x instanceof Map], [Map, (x) => x instanceof Map]]);
const $isinstance = (x, type) => ($TYPES.get(type) ?? $unknown("an instance of such a type"))(x);

/* Functions that are called with names, and records: NamedTuple and frozen dataclass */
const $SPARED = Symbol(); // a text that nothing reads
/* Functions that remember what they returned, by all that they were given: a few hundred answers, or none. */
const $WRITTEN = new WeakMap(); // records do not change
const $all_of = (x) => ($is_record(x) ? $WRITTEN.get(x) ?? ((text) => ($WRITTEN.set(x, text), text))($all_of(Object.values(x))) : Array.isArray(x) ? `[${x.map($all_of)}]` : typeof x === "string" ? `"${x}"` : `${x}`);
function $remembered(f) {
  const found = new Map();
  return (...given) => {
    const asked = $all_of(given);
    if (found.size > 255) found.clear();
    return found.get(asked) ?? (found.set(asked, f(...given)), found.get(asked));
  };
}
const $named = (f, names, most, rest = false) => Object.assign(f, { $names: names, $most: most, $rest: rest });
const $own = Object.fromEntries.bind(Object);
function $call(f, given, named = {}) {
  if (!f.$names) return f.length === given.length && !Object.keys(named).length ? f(...given) : $refuse(`${f.length} arguments are taken, ${given.length} are given`);
  const names = f.$rest ? f.$names.slice(0, -1) : f.$names, all = given.concat(names.slice(given.length).map((name) => named[name]));
  const others = Object.keys(named).filter((name) => names.indexOf(name) < given.length);
  if (given.length > f.$most || others.some((name) => !f.$rest || names.includes(name))) $refuse(`${f.name} takes no ${others}`);
  return f(...all, ...(f.$rest ? [new Map(others.map((name) => [name, named[name]]))] : []));
}
class $Record {}
const $read = (x) => (x === $SPARED ? $unknown("a record as a whole of which a text was left out") : x);
const $is_record = (x) => x instanceof $Record;
function $record(name, described) {
  const fields = described.map((field) => [].concat(field)); // its name; its type, where it is asked for; what stands there
  class Record extends $Record {}
  const make = (...given) => {
    const record = new Record();
    if (given.length > fields.length) $refuse(`${name} takes ${fields.length}`);
    fields.forEach(([field, , value], n) => { record[field] = given[n] !== undefined ? given[n] : value !== undefined ? value : $refuse(`${name} needs ${field}`); });
    record.__post_init__?.();
    return record;
  };
  Object.assign(Record, { make, title: name });
  return Object.assign($named(make, fields.map(([field]) => field), fields.length), { $fields: fields, $class: Record });
}
const $methods = (make, methods) => Object.defineProperties(make.$class.prototype, Object.getOwnPropertyDescriptors(methods));
const $instance = (x, make) => x instanceof make.$class;
class $Own {} // what has methods and is no record
function $class(methods, of) {
  class Own extends (of?.$class ?? $Own) {}
  Object.assign(Own.prototype, methods);
  if (of) Object.setPrototypeOf(methods, of.$class.prototype); // where they find what super has
  const make = (...given) => {
    const made = new Own();
    made.__init__(...given);
    return made;
  };
  return Object.assign(make, { $class: Own });
}
const $method = (x, name, other, ...given) => (x instanceof $Own || x instanceof $Record ? x[name](...given) : other ? other(x, ...given) : $refuse(`${$repr(x)} takes no ${given.length} arguments`));
const $partial = (f, first, names = {}) => $named((...all) => $call(f, first.concat(all.slice(0, -1)), { ...names, ...$own(all.at(-1)) }), ["*"], Infinity, true);
const $getattr = (x, name) => ($is_record(x) && Object.hasOwn(x, name) ? $read(x[name]) : $raise(`no field ${name}`));
const $fields = (make) => make.$fields.map(([name, type]) => ({ name, type }));
const $replace = (record, named) => $call(record.constructor.make, [], { ...record, ...named });

/* Texts */
const $group = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
const $power = (e) => `e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
const $point = (digits, e) => (e < 0 ? `0.${"0".repeat(-e - 1)}${digits}` : `${digits.slice(0, e + 1).padEnd(e + 1, "0")}.${digits.slice(e + 1)}`);
const $fixed = (x, decimals) => {
  const digits = $scaled(x, decimals).toString().padStart(decimals + 1, "0");
  return decimals ? `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}` : digits;
};
function $general(x, precision) { // as %g
  if (x === 0) return "0";
  let e = Math.floor(Math.log10(x)) + 1, digits = "";
  while (digits.length < precision) digits = $scaled(x, precision - 1 - --e).toString();
  if (digits.length > precision) [digits, e] = [digits.slice(0, precision), e + 1];
  const bare = (text) => (text.includes(".") ? text.replace(/\.?0*$/, "") : text);
  return e < -4 || e >= precision ? bare(`${digits[0]}.${digits.slice(1)}`) + $power(e) : bare($point(digits, e));
}
function $shortest(x) { // as repr writes a float
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : "inf";
  const [mantissa, power] = x.toExponential().split("e"), digits = mantissa.replace(".", ""), e = Number(power);
  return e < -4 || e >= 16 ? mantissa + $power(e) : $point(digits, e).replace(/\.$/, ".0");
}
function $format(x, spec) {
  if (spec === "") return $str(x);
  const [, width = "0", comma, precision, kind] = /^([1-9]\d*)?(,?)(?:\.(\d+))?([fgd%]?)$/.exec(spec) ?? $unknown(`the format ${spec}`);
  const room = (text) => " ".repeat(Math.max(0, Number(width) - $chars(text).length));
  if (typeof x === "string") return comma || precision || kind ? $unknown(`the format ${spec} of a text`) : x + room(x);
  const whole = kind === "" || kind === "d", size = whole ? $number(x) : $real($number(x)), negative = size < 0 || Object.is(size, -0);
  if (whole && (precision || (kind && typeof size === "number"))) $unknown(`the format ${spec} of ${$repr(x)}`);
  const digits = Number(precision ?? 6), bare = negative ? -size : size;
  let text = typeof bare === "number" && !Number.isFinite(bare) ? $shortest(bare) + (kind === "%" ? "%" : "") : kind === "f" ? $fixed(bare, digits) : kind === "g" ? $general(bare, digits || 1) : kind === "%" ? `${$fixed($finite(bare * 100), digits)}%` : typeof bare === "bigint" ? `${bare}` : $shortest(bare);
  if (comma) text = text.replace(/^\d+/, $group);
  text = (negative ? "-" : "") + text;
  return room(text) + text;
}
const $finite = (x) => (Number.isFinite(x) ? x : $unknown("per cent of such a number"));
function $repr(x) {
  $read(x);
  if (x == null) return "None";
  if (typeof x === "boolean") return x ? "True" : "False";
  if (typeof x === "number") return (x < 0 || Object.is(x, -0) ? "-" : "") + $shortest(Math.abs(x));
  if (typeof x === "string") {
    const quote = x.includes("'") && !x.includes('"') ? '"' : "'";
    const escape = (c) => ({ "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", [quote]: `\\${quote}` })[c] ?? ((n) => (n < 256 ? `\\x${n.toString(16).padStart(2, "0")}` : n < 65536 ? `\\u${n.toString(16).padStart(4, "0")}` : `\\U${n.toString(16).padStart(8, "0")}`))(c.codePointAt(0));
    return quote + x.replace(new RegExp(`[\\\\${quote}]|(?! )[\\p{C}\\p{Z}]`, "gu"), escape) + quote;
  }
  if (x instanceof Map) return "{" + [...x].map(([key, value]) => `${$repr(key)}: ${$repr(value)}`).join(", ") + "}";
  if ($is_record(x)) return x.constructor.title + "(" + Object.entries(x).map(([name, value]) => `${name}=${$repr(value)}`).join(", ") + ")";
  if ($is_tuple(x)) return x.length === 1 ? `(${$repr(x[0])},)` : `(${x.map($repr).join(", ")})`;
  return typeof x === "bigint" ? `${x}` : Array.isArray(x) ? `[${x.map($repr).join(", ")}]` : $unknown(`the text of a ${x?.constructor?.name}`);
}
const $SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]"; // what Python calls so
const $EDGES = new RegExp(`^${$SPACE}+|${$SPACE}+$`, "g"), $SPACES = new RegExp(`${$SPACE}+`);
const $re_compile = (pattern, ascii = false) => { // what means another thing in one of the languages is none of ours
  if (/\\[^dw.()[\]+*?|]|\$|(?<!\[)\^|(?<!\\)\.|\(\?[^:]/.test(pattern) || (!ascii && /\\[dw]/.test(pattern))) $unknown(`the pattern ${pattern}`);
  return { whole: new RegExp(`^(?:${pattern})$`, "u"), part: new RegExp(pattern, "u") };
};
const $Path = (text) => text; // on a page a file is the text that was pasted
function $json_loads(text) { // with Infinity and NaN, as Python writes and reads them
  const PART = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, endless = /^-?[IN]/;
  const exact = text.replace(PART, (part) => (part[0] === '"' ? `"s${part.slice(1)}` : `"n${part}"`));
  try {
    JSON.parse(text.replace(PART, (part) => (endless.test(part) ? "null" : part))); // refuses what is none
  } catch (error) {
    throw error instanceof SyntaxError ? new ValueError(error.message) : error;
  }
  const read = (x) => {
    if (typeof x === "string") return x[0] === "s" ? x.slice(1) : /^-?\d+$/.test(x.slice(1)) ? BigInt(x.slice(1)) : Number(x.slice(1));
    if (x === null || typeof x !== "object") return x;
    return Array.isArray(x) ? x.map(read) : new Map(Object.entries(x).map(([key, value]) => [key.slice(1), read(value)]));
  };
  return read(JSON.parse(exact));
}
const $of_map = (map) => (map instanceof Map ? map : $refuse(`${$repr(map)} is no dict`));
const $text = (text) => (typeof text === "string" ? text : $refuse(`${$repr(text)} is no text`));
const $some = (text) => $text(text) || $unknown("an empty text to look for");
/* Methods, each with what it is called of as its first argument */
const $m_items = (map) => ($of_map(map), new $View(function* () { for (const pair of map) yield $tupled(pair); }, () => map.size));
const $m_keys = (map) => ($of_map(map), new $View(() => map.keys(), () => map.size));
const $m_values = (map) => ($of_map(map), new $View(() => map.values(), () => map.size));
const $m_get = (map, key, other = null) => ($of_map(map).has($key(key)) ? map.get($key(key)) : other);
const $m_index = (list, x) => ((n) => (n < 0 ? $no(`${$repr(x)} is not in it`) : BigInt(n)))(list.findIndex((each) => $eq(each, x)));
const $reversed = (all) => (Array.isArray(all) ? [...all].reverse() : $unknown("reversed of what is no list or tuple"))[Symbol.iterator]();
function $m_pop(all, at = -1n, other) {
  if ($is_list(all)) return all.splice($position(all, at), 1)[0];
  const key = $key(at), found = $of_map(all).get(key);
  return all.delete(key) ? found : other !== undefined ? other : $raise(`no ${$repr(at)}`);
}
const $m_append = (list, x) => (list.push(x), null);
const $m_add = (set, x) => (set.add($key(x)), null);
const $m_remove = (all, x) => (all instanceof Set ? all.delete($key(x)) || $raise(`no ${$repr(x)}`) : all.splice($position(all, $m_index(all, x)), 1), null);
const $m_setdefault = (map, key, value) => ((key) => ($of_map(map).has(key) ? map.get(key) : (map.set(key, value), value)))($key(key));
const $m_bit_length = (x) => (x > 0n ? BigInt(x.toString(2).length) : $unknown("the length of what is not above 0"));
const $before = (a, b) => (Array.isArray(a) && $big(a[0], b[0]) && a[0] !== b[0] ? a[0] < b[0] : $lt(a, b)); // of tuples, mostly by their first
/* Where it would stand in a list that is in order, before those that are as large */
function $bisect_left(all, x) {
  let low = 0, high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ($before(all[middle], x)) low = middle + 1;
    else high = middle;
  }
  return BigInt(low);
}
const $insort = (all, x) => (all.splice(Number($bisect_left(all, x)), 0, x), null); // where it is one of as large ones, which of them is first nobody sees
const $m__asdict = (record) => new Map(Object.entries(record).map(([name, x]) => [name, $read(x)]));
const $m__replace = (record, named) => $replace(record, named);
const $m_strip = (text) => text.replace($EDGES, "");
const $m_lower = (text) => text.toLowerCase();
const $m_upper = (text) => text.toUpperCase();
const $m_islower = (text) => /\p{Lowercase}/u.test($text(text)) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
const $m_isdigit = (text) => (/[^\p{Nd}\p{L}\x00-\x7f]/u.test($text(text)) ? $unknown("isdigit of such signs") : /^\p{Nd}+$/u.test(text));
const $m_isascii = (text) => !/[^\x00-\x7f]/.test($text(text));
const $m_replace = (text, a, b) => $text(text).replaceAll($some(a), () => $text(b));
const $m_split = (text, by = null) => (by === null ? text.split($SPACES).filter(Boolean) : text.split($some(by)));
const $m_partition = (text, by) => ((n) => $tupled(n < 0 ? [text, "", ""] : [text.slice(0, n), by, text.slice(n + by.length)]))(text.indexOf($some(by)));
const $m_join = (text, parts) => Array.from($each(parts), $text).join($text(text));
const $m_format = (text, ...values) => {
  const parts = text.split("{}");
  if (/[{}]/.test(parts.join(""))) $unknown(`the template ${text}`);
  if (parts.length > values.length + 1) $raise("too few values for the template");
  return parts.map((part, n) => (n ? $str(values[n - 1]) : "") + part).join("");
};
const $m_startswith = (text, start) => text.startsWith($text(start));
const $m_endswith = (text, end) => text.endsWith($text(end));
const $m_translate = (text, table) => Array.from($text(text), (c) => ((key) => (table.has(key) ? ((to) => (typeof to === "bigint" ? String.fromCodePoint(Number(to)) : to ?? ""))(table.get(key)) : c))(BigInt(c.codePointAt(0)))).join("");
const $m_fullmatch = (pattern, text) => pattern.whole.exec($text(text));
const $m_search = (pattern, text) => pattern.part.exec($text(text));
const $m_read_text = (text) => text;
