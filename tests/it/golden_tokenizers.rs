//! Token ids against transformers.

use latentia::text::Tokenizer;

use crate::fixtures;
use crate::fixtures::read_json;

#[test]
fn golden_tokenizers_clip() {
    let folder = fixtures::folder().join("tokenizers");
    if !folder.join("goldens.json").is_file() {
        println!("golden tokenizers: none in this folder");
        return;
    }
    let goldens = read_json(&folder.join("goldens.json")).unwrap();
    let clip = folder.join("clip");
    let mut tokenizers = vec![("built in", Tokenizer::clip(false).unwrap())];
    if clip.is_dir() {
        let file = |name: &str| std::fs::read(clip.join(name)).unwrap();
        let config = serde_json::from_slice(&file("tokenizer_config.json")).unwrap();
        let read = Tokenizer::from_merges(&file("vocab.json"), &file("merges.txt"), Some(&config)).unwrap();
        tokenizers.push(("files", read));
    }
    let cases = goldens["clip"].as_array().unwrap();
    let mut failures = Vec::new();
    for (name, tokenizer) in &tokenizers {
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let golden: Vec<u32> = serde_json::from_value(case["ids77"].clone()).unwrap();
            let ours = tokenizer.encode(text).unwrap().ids;
            if ours != golden {
                failures.push(format!("{name}: {text:?}\n  ours   {ours:?}\n  golden {golden:?}"));
            }
        }
    }
    let of = cases.len() * tokenizers.len();
    println!("golden tokenizers/clip: {} of {of} cases passed", of - failures.len());
    let others = goldens.as_object().unwrap().keys().filter(|name| *name != "clip");
    others.for_each(|name| println!("golden tokenizers/{name}: not yet supported"));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(of > 0);
}
