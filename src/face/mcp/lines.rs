//! Standard streams, line by line: what is no single message gets an answer that says so, and never reaches the server.
//!
//! `rmcp` passes over what it cannot read, and of a key that is there twice it takes the last. Whoever sent it would wait
//! for ever, or be taken for somebody who said something else.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, stdin, stdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::tool::REQUEST_BYTES;
use crate::weights::read_json;

/// Bytes on their way between two tasks.
const PIPE: usize = 64 << 10;

/// Reads one message.
///
/// # Errors
/// What is wrong with it, as the protocol numbers it.
pub(in crate::face) fn message(bytes: &[u8]) -> std::result::Result<Value, Value> {
    let fault = |code: i32, text: String| {
        Err(json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": text } }))
    };
    if bytes.len() > REQUEST_BYTES {
        return fault(-32600, format!("the message has more than {REQUEST_BYTES} bytes"));
    }
    match read_json(bytes, REQUEST_BYTES, "the message") {
        Err(error) => fault(-32700, error.to_string()),
        Ok(value) if !value.is_object() || value["jsonrpc"] != "2.0" => {
            fault(-32600, "this is not one JSON-RPC message".into())
        }
        Ok(value) => Ok(value),
    }
}

/// The streams that a server reads and writes, and the task that ends when all is written.
pub(super) fn streams() -> (DuplexStream, DuplexStream, JoinHandle<()>) {
    let (heard, input) = duplex(PIPE);
    let (output, said) = duplex(PIPE);
    let (lines, written) = mpsc::channel(16);
    tokio::spawn(forward(said, lines.clone()));
    tokio::spawn(listen(heard, lines));
    (input, output, tokio::spawn(write(written)))
}

/// Lines of the server, in turn with ours.
async fn forward(said: DuplexStream, lines: mpsc::Sender<Vec<u8>>) {
    let mut said = BufReader::new(said);
    loop {
        let mut line = Vec::new();
        match said.read_until(b'\n', &mut line).await {
            Ok(length) if length > 0 && lines.send(line).await.is_ok() => {}
            _ => return,
        }
    }
}

async fn write(mut lines: mpsc::Receiver<Vec<u8>>) {
    let mut output = stdout();
    while let Some(line) = lines.recv().await {
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

/// Lines of the client. One that is too long is not kept.
async fn listen(mut heard: DuplexStream, lines: mpsc::Sender<Vec<u8>>) {
    let mut input = BufReader::new(stdin());
    let mut line = Vec::new();
    loop {
        let Ok(bytes) = input.fill_buf().await else { return };
        if bytes.is_empty() {
            return;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(bytes.len(), |at| at + 1);
        // One byte too many is enough to know.
        let room = (REQUEST_BYTES + 2).saturating_sub(line.len());
        line.extend_from_slice(&bytes[..length.min(room)]);
        input.consume(length);
        if end.is_none() {
            continue;
        }
        let text = line.trim_ascii();
        let sent = match message(text) {
            _ if text.is_empty() => Ok(()),
            Err(answer) => lines.send(format!("{answer}\n").into_bytes()).await.map_err(drop),
            Ok(_) => heard.write_all(&[text, b"\n"].concat()).await.map_err(drop),
        };
        if sent.is_err() {
            return;
        }
        line = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_has_its_number() {
        let number = |text: &str| message(text.as_bytes()).err().map(|fault| fault["error"]["code"].clone());
        assert_eq!(number(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), None);
        for (text, expected) in [
            ("{\"jsonrpc\":\"2.0\",", -32700),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32700),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
            ("7", -32600),
            (r#"{"id":1,"method":"ping"}"#, -32600),
        ] {
            assert_eq!(number(text), Some(expected.into()), "{text}");
        }
    }
}
