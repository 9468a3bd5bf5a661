"""`codraft generate`: lossless decoding, one prompt at a time."""

from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o


def generate(
    target: o.Target,
    /,
    *,
    drafter: o.Drafters = None,
    prompt: Annotated[
        list[str] | None,
        Parameter(consume_multiple=False, negative=(), help="A prompt as text; repeat for more."),
    ] = None,
    prompts: o.Prompts = None,
    depth: Annotated[
        int | None,
        o.Whole,
        Parameter(name=["--depth", "-D"], help="Tokens drafted a step (default 4); 0 is plain."),
    ] = None,
    max_new_tokens: Annotated[int, o.Whole, Parameter(help="Tokens of each answer.")] = 128,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    seed: o.Seed = None,
    dtype: o.Dtype = "auto",
    skip_long: o.SkipLong = False,
    raw: o.Raw = False,
    json: o.Json = None,
) -> int:
    """Answers by the lossless loop; without `--drafter`, plain decoding.

    codraft generate demo --prompt "Name three rivers." -d ngram -D 4
    """
    from codraft.core.errors import SpecError
    from codraft.core.record import GenerationRecord, check_destination, emit, provenance
    from codraft.core.spec import Sampling, check_depth, parse_drafters, sampling_of

    sampling = sampling_of(temperature, top_p, top_k, seed) or Sampling()
    specs = parse_drafters(drafter or [])
    if len(specs) > 1:
        raise SpecError(f"generate takes at most one --drafter; got {len(specs)}")
    D = check_depth((4 if specs else 0) if depth is None else depth, lowest=0)
    if D > 0 and not specs:
        raise SpecError(f"-D {D} needs a --drafter, for example --drafter ngram; without one only D = 0 works")
    if bool(prompt) == bool(prompts):
        raise SpecError("give either --prompt TEXT or --prompts FILE[:N], one of the two")
    check_destination(json)
    from codraft.cli.tables import print_generation
    from codraft.cli.ui import RichUi
    from codraft.core.files import sha256_text
    from codraft.decode.hf.load import check_dtype, engine_versions, load_card, load_model
    from codraft.decode.hf.text import TextCodec
    from codraft.drafters.registry import build
    from codraft.replay.generate import generate as run
    from codraft.replay.job import check_positive
    from codraft.replay.prompts import conversation, load_prompts
    from codraft.replay.streams import sampling_dict

    check_positive(max_new_tokens, "--max-new-tokens")
    check_dtype(dtype)
    if prompts:
        conversations = load_prompts(prompts).conversations
    else:
        conversations = [
            conversation({"prompt": p}, f"--prompt {i}", str(i)) for i, p in enumerate(prompt or [], start=1)
        ]
    ui = RichUi()
    card = load_card(target)
    with ui.stage(f"load {target}"):
        built = [build(spec, card.vocab_size, card.folder, sampling, dtype) for spec in specs]
        model = load_model(target, dtype)
    with ui.stage("generate") as progress:
        outputs = run(
            model,
            built[0] if built else None,
            TextCodec(card.tokenizer, raw=raw),
            conversations,
            sampling,
            D=D,
            max_new_tokens=max_new_tokens,
            skip_long=skip_long,
            progress=progress,
        )
    record = GenerationRecord(
        schema=GenerationRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions(),
            input_hashes={"prompts": sha256_text(repr([output.prompt_ids for output in outputs]))},
            dtype=model.dtype,
            device=model.device,
            seeds=(sampling.seed,),
        ),
        target=target,
        drafter=built[0].info if built else None,
        D=D,
        sampling=sampling_dict(sampling),
        skipped_long=sum(c.num_turns for c in conversations) - len(outputs) or None,
        outputs=outputs,
    )
    print_generation(record)
    emit(record, json)
    return 0
