package timeline

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAStartIsReadFromItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := slog.New(slog.NewTextHandler(&log, nil))
		l.Info("starting", "version", "1 of many")
		Begin(l, "of a start before")()
		time.Sleep(time.Hour)
		l.Info("starting", "node", "alice")
		store := Begin(l, "datastore")
		time.Sleep(100 * time.Millisecond)
		api := Begin(l, "API server")
		store()
		l.Warn("something else", "took", "1s", "part", `of "it" = 3`)
		time.Sleep(3 * time.Second)
		api()
		text := strings.ReplaceAll(log.String(), "time=", "Nov 28 alice kith-k8s[12]: time=") // as a journal shows it
		got, err := Read(strings.NewReader("no record\n" + text))
		if err != nil || got.Program != "kith-k8s" || len(got.Parts) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		want := []Part{{"datastore", 0, 100 * time.Millisecond}, {"API server", 100 * time.Millisecond, 3100 * time.Millisecond}}
		if got.Parts[0] != want[0] || got.Parts[1] != want[1] {
			t.Errorf("%+v", got.Parts)
		}
		var drawn strings.Builder
		if err := Draw(&drawn, Start{"kithd", got.At.Add(-900 * time.Millisecond), []Part{{"Kubernetes", 0, 4 * time.Second}}}, got); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(drawn.String(), "\n")
		if len(lines) != 6 || lines[1] != "  Kubernetes   0.00 s    4.00 s |"+strings.Repeat("=", 60) ||
			lines[4] != "  API server   1.00 s    4.00 s |"+strings.Repeat(" ", 15)+strings.Repeat("=", 45) {
			t.Errorf("%s", drawn.String())
		}
	})
}

// A log is anybody's bytes by the time it is read.
func FuzzRead(f *testing.F) {
	f.Add("time=2026-11-28T21:48:28.092Z level=INFO msg=starting\ntime=2026-11-28T21:48:29Z msg=\"part is ready\" part=a took=1s")
	f.Add(`time="= msg=" part`)
	f.Add("time=2026-11-28T21:48:28.092Z msg=starting\ntime=0001-01-01T00:00:00Z msg=\"part is ready\" took=-9223372036854775808ns")
	f.Fuzz(func(t *testing.T, log string) {
		s, err := Read(strings.NewReader(log))
		if err == nil {
			_ = Draw(io.Discard, s)
		}
	})
}
