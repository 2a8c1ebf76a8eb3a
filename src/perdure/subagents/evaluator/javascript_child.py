"""Runs one JavaScript workflow script in V8. See `process` for how it is started.

The script sees `runs`, `args`, `emit`, `now`, `random` and `console`, and nothing else of the world: V8 brings no files
and no network, and its clock and its randomness are taken away.
"""

import json
import os
from importlib import import_module
from typing import Any

from perdure.subagents.evaluator import boundary

PRELUDE = r"""
(() => {
  const said = [], calls = new Map();
  let moment = 0, state = 1n;
  const M = (1n << 64n) - 1n;
  const say = (line) => { said.push(line); };
  const freeze = (v) => {
    if (v && typeof v === "object") { Object.values(v).forEach(freeze); Object.freeze(v); }
    return v;
  };
  const json = (v, what) => {
    const text = JSON.stringify(v);
    if (text === undefined) { if (v === undefined) return null; throw new TypeError(what + " is no JSON"); }
    return JSON.parse(text);
  };
  const refuse = (what) => () => { throw new Error(what + " is not available in workflow scripts"); };
  const RealDate = Date;
  const Frozen = function (...given) {
    if (!new.target || given.length === 0) throw new Error("Date without a date is not available; use now()");
    return Reflect.construct(RealDate, given, new.target);
  };
  Frozen.prototype = RealDate.prototype;
  Frozen.UTC = RealDate.UTC; Frozen.parse = RealDate.parse; Frozen.now = refuse("Date.now");
  RealDate.prototype.constructor = Frozen;
  globalThis.Date = Frozen;
  Math.random = refuse("Math.random");
  if (typeof Intl !== "undefined") {
    const format = Intl.DateTimeFormat.prototype.formatToParts;
    for (const name of ["format", "formatToParts"]) {
      const own = Object.getOwnPropertyDescriptor(Intl.DateTimeFormat.prototype, name);
      if (own && own.get) Object.defineProperty(Intl.DateTimeFormat.prototype, name, { get() {
        const real = own.get.call(this);
        return (d) => { if (d === undefined) throw new Error("formatting without a date"); return real(d); };
      } });
      else Intl.DateTimeFormat.prototype[name] = function (d) {
        if (d === undefined) throw new Error("formatting without a date");
        return format.call(this, d);
      };
    }
  }
  for (const name of ["WebAssembly", "SharedArrayBuffer", "Atomics", "performance", "eval", "Function",
                      "FinalizationRegistry", "WeakRef"]) {
    try { delete globalThis[name]; } catch (e) {}
  }
  const runs = {
    run(key, spec) {
      say({ type: "propose", key: json(key, "the key"), spec: json(spec, "the spec") });
      const name = typeof key === "string" ? key : JSON.stringify(key);
      if (!calls.has(name)) { const c = {}; c.promise = new Promise((r) => { c.resolve = r; }); calls.set(name, c); }
      return calls.get(name).promise;
    },
    all(items) { return Promise.all(items); },
    input(name) {
      if (!(name in inputs)) throw new Error("no input " + name);
      return inputs[name];
    },
  };
  let inputs = {};
  const random = () => {
    state ^= (state << 13n) & M; state ^= state >> 7n; state ^= (state << 17n) & M;
    const value = Number(state >> 11n) / 2 ** 53;
    say({ type: "used", what: "random", value });
    return value;
  };
  const now = () => { say({ type: "used", what: "now", value: moment }); return moment; };
  const emit = (value) => { say({ type: "emit", value: json(value, "the value") }); };
  const line = (level) => (...v) => say({ type: "log", level, text: v.map((x) =>
    typeof x === "string" ? x : JSON.stringify(x) ?? String(x)).join(" ") });
  globalThis.console = { log: line("info"), info: line("info"), warn: line("warn"), error: line("error"),
                         debug: line("debug") };
  let ended = null;
  const AsyncFunction = (async () => {}).constructor;
  const stretch = (t, seed) => { moment = t; state = (BigInt(seed) ^ 0x9e3779b97f4a7c15n) & M || 1n; };
  globalThis.__perdure = {
    begin(given) {
      stretch(given.now, given.seed);
      inputs = given.inputs;
      const source = given.source;
      let main;
      try { main = new AsyncFunction("runs", "args", "emit", "now", "random", '"use strict";\n' + source); }
      catch (e) { ended = { type: "threw", error: String(e) }; return; }
      main(Object.freeze(runs), freeze(given.args), emit, now, random).then(
        (value) => {
          try { ended = { type: "returned", value: json(value, "its return value") }; }
          catch (e) { ended = { type: "threw", error: String(e) }; }
        },
        (e) => { ended = { type: "threw", error: String(e) }; });
    },
    show(given) { stretch(given.now, given.seed); calls.get(given.key).resolve(freeze(given.result)); },
    take() { const out = JSON.stringify([said.splice(0), ended]); return out; },
  };
})();
"""


_pending = bytearray()


def hear(pending: Any = _pending) -> Any:
    """One line in; None at the end."""
    while b"\n" not in pending:
        more = os.read(0, 1 << 16)
        if not more:
            return None
        pending += more
    line, _, rest = bytes(pending).partition(b"\n")
    pending[:] = rest
    return line.decode()


def say(line: Any) -> None:
    os.write(1, json.dumps(line).encode("utf-8", "surrogatepass") + b"\n")


def main() -> None:
    engine: Any = import_module("py_mini_racer").MiniRacer()
    engine.eval(PRELUDE)
    boundary.limit(memory=0)
    while (line := hear()) is not None:
        given = json.loads(line)
        try:
            engine.eval(f"__perdure.{given['type']}({line}); 0", max_memory=boundary.MEMORY_BYTES)
            said, ended = json.loads(str(engine.eval("__perdure.take()")))
        except Exception as error:
            kind = type(error).__name__
            out = {"type": "limited", "what": "memory"} if "OOM" in kind else {"type": "threw", "error": str(error)}
            say(out)
            return
        for one in said:
            say(one)
        say(ended if ended is not None else {"type": "waiting"})


if __name__ == "__main__":
    main()
