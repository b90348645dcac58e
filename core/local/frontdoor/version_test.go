package frontdoor

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// read gives the version that a tap finds, and how much of the answer had passed then.
func read(t *testing.T, media, encoding string, list bool, body io.Reader) (version string, text []byte, times int) {
	t.Helper()
	answer := &http.Response{Header: http.Header{"Content-Type": {media}, "Content-Encoding": {encoding}}, Body: io.NopCloser(body)}
	tapped(answer, list, func(v string) { version, times = v, times+1 })
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return version, text, times
}

func TestTheVersionOfAnAnswerIsRead(t *testing.T) {
	items := strings.Repeat(`{"metadata":{"name":"a","resourceVersion":"1"},"s":"\"metadata\":{\"resourceVersion\":\"2\"}"},`, 500)
	items = "[" + strings.TrimSuffix(items, ",") + "]"
	for name, c := range map[string]struct{ text, want string }{
		"a list of a built-in kind":       {`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"77","continue":"x"},"items":` + items + `}`, "77"},
		"a list of custom resources":      {`{"apiVersion":"kith.dev/v1alpha1","items":` + items + `,"kind":"PeerList","metadata":{"continue":"","resourceVersion":"78"}}` + "\n", "78"},
		"an object":                       {`{"kind":"Pod","metadata":{"name":"a","labels":{"resourceVersion":"9"},"managedFields":[{"resourceVersion":"8"}],"resourceVersion":"79"}}`, "79"},
		"spaces":                          {"{\n \"metadata\" : {\n\t\"resourceVersion\" : \"80\" } }", "80"},
		"none":                            {`{"kind":"NodeMetricsList","metadata":{},"items":[]}`, unread},
		"null":                            {`{"metadata":null,"resourceVersion":"1","items":[{"metadata":{"resourceVersion":"1"}}]}`, unread},
		"behind the object":               {`{"metadata":{}}{"metadata":{"resourceVersion":"1"}}`, unread},
		"a number":                        {`{"metadata":{"resourceVersion":81,"x":"82"}}`, unread},
		"a list of all":                   {`[{"metadata":{"resourceVersion":"1"}}]`, unread},
		"too long":                        {`{"metadata":{"resourceVersion":"` + strings.Repeat("1", 100) + `"}}`, unread},
		"nothing":                         {``, unread},
		"a key that is longer than known": {`{"` + strings.Repeat("metadata", 20) + `":{"resourceVersion":"1"},"metadata":{"resourceVersion":"83"}}`, "83"},
	} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		w.Write([]byte(c.text))
		w.Close()
		for how, body := range map[string]io.Reader{
			"whole": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text)), "with its end": iotest.DataErrReader(strings.NewReader(c.text)),
		} {
			if version, text, times := read(t, "application/json;charset=utf-8", "", true, body); version != c.want || string(text) != c.text || times != 1 {
				t.Errorf("%s, %s: %q, told %d times, %d of %d bytes", name, how, version, times, len(text), len(c.text))
			}
		}
		for how, body := range map[string]io.Reader{"packed": bytes.NewReader(packed.Bytes()), "packed, byte by byte": iotest.OneByteReader(bytes.NewReader(packed.Bytes()))} {
			if version, text, times := read(t, "application/json", "gzip", true, body); version != c.want || !bytes.Equal(text, packed.Bytes()) || times != 1 {
				t.Errorf("%s, %s: %q, told %d times, %d of %d bytes", name, how, version, times, len(text), packed.Len())
			}
		}
	}
	if version, text, times := read(t, "application/cbor", "", true, strings.NewReader("x")); version != unread || string(text) != "x" || times != 1 {
		t.Errorf("another form: %q %q %d", version, text, times)
	}
	if version, text, times := read(t, "application/json", "gzip", true, strings.NewReader("not packed")); string(text) != "not packed" || times != 0 {
		t.Errorf("falsely packed: %q %q %d", version, text, times)
	}
}

func TestWhatBrokeOffGaveNoVersion(t *testing.T) {
	told := 0
	answer := &http.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(`{"items":[]}`))))}
	tapped(answer, true, func(string) { told++ })
	if _, err := io.ReadAll(answer.Body); err == nil || told > 0 {
		t.Errorf("%v, told %d times", err, told)
	}
}

// FuzzVersion holds what is read of JSON against a decoder's word.
func FuzzVersion(f *testing.F) {
	f.Add(`{"metadata":{"resourceVersion":"7"}}`, 3)
	f.Add(`{"items":[{"metadata":{"resourceVersion":"1"}}],"metadata":{"a":"\"","resourceVersion":"8"}}`, 5)
	f.Fuzz(func(t *testing.T, text string, part int) {
		var of jsonFinder
		version, done := "", false
		for rest := []byte(text); len(rest) > 0 && !done; {
			n := min(len(rest), max(1, part))
			version, done = of.look(rest[:n])
			rest = rest[n:]
		}
		var in struct {
			Metadata map[string]json.RawMessage `json:"metadata"`
		}
		if len(text) > 0 && text[0] != '{' || strings.Contains(text, `\`) || strings.Count(text, "metadata") > 1 || strings.Count(text, "resourceVersion") > 1 || json.Unmarshal([]byte(text), &in) != nil {
			return // names that are written twice or otherwise no API server sends
		}
		var want string
		if json.Unmarshal(in.Metadata["resourceVersion"], &want) != nil || len(want) > maxVersion {
			return
		}
		if version != want {
			t.Errorf("%q: %q, want %q", text, version, want)
		}
	})
}
