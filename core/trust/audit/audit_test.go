package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// record is a Log, and what came of it.
type record struct {
	*Log
	text  bytes.Buffer
	count map[string]int
	told  []string
}

func newRecord() *record {
	r := &record{count: map[string]int{}}
	r.Log = New(slog.New(slog.NewTextHandler(&r.text, nil)), Options{
		Named: func(id string) string { return map[string]string{"ID-OF-ALICE": "alice"}[id] },
		Count: func(door Door, reason Reason) { r.count[string(door)+"/"+string(reason)]++ },
		Tell:  func(peer, id, message string) { r.told = append(r.told, peer+"|"+id+"|"+message) },
	})
	return r
}

func (r *record) lines() int { return strings.Count(r.text.String(), "\n") }

func exec(pod string) Refusal {
	return Refusal{Door: Kube, Reason: "path", ID: "ID-OF-ALICE", Addr: netip.MustParseAddrPort("192.0.2.11:5"), What: "POST /" + pod, Why: "not yours"}
}

func TestALineSaysWhoWhatAndWhy(t *testing.T) {
	r := newRecord()
	r.Note(exec("a"))
	if want := `level=WARN msg=refused door=kube peer=alice id=ID-OF-ALICE what="POST /a" why="not yours" addr=192.0.2.11:5`; !strings.Contains(r.text.String(), want) {
		t.Errorf("%s", r.text.String())
	}
	r.Note(Refusal{Door: Socket, Reason: "user", User: "uid 1000", What: "GET /v1/status", Why: "no member"})
	if want := `door=socket user="uid 1000" what="GET /v1/status"`; !strings.Contains(r.text.String(), want) {
		t.Errorf("%s", r.text.String())
	}
}

func TestTheSameLineComesOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		for range 50 {
			r.Note(exec("a"))
		}
		time.Sleep(61 * time.Second)
		r.Note(exec("a"))
		if r.lines() != 2 || !strings.Contains(r.text.String(), "unlogged=49") || r.count["kube/path"] != 51 {
			t.Errorf("%d lines, counted %v\n%s", r.lines(), r.count, r.text.String())
		}
	})
}

func TestAFloodFillsNoLogAndTellsTheOwnerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		for i := range 5000 {
			r.Note(exec(fmt.Sprint(i)))
			time.Sleep(10 * time.Millisecond)
		}
		if r.lines() > linesBurst+50/6+1 {
			t.Errorf("%d lines in 50 s", r.lines())
		}
		if len(r.told) != 1 || !strings.HasPrefix(r.told[0], "alice|ID-OF-ALICE|refused 10 times within a minute, last POST /9: ") {
			t.Errorf("the owner was told %q", r.told)
		}
		if s, _ := r.subjects.Get("ID-OF-ALICE"); len(s.(*subject).last) > maxLines {
			t.Errorf("%d lines are remembered", len(s.(*subject).last))
		}
	})
}

func TestStrangersDoNotTakeThePlaceOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		for i := range 5000 {
			r.Note(Refusal{Door: PeerAPI, Reason: "x", Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1), What: "knock", Why: "no"})
		}
		if r.subjects.Len() > maxSubjects || r.lines() != strangerBurst {
			t.Errorf("%d subjects, %d lines", r.subjects.Len(), r.lines())
		}
		r.Note(exec("a"))
		if !strings.Contains(r.text.String(), "peer=alice") {
			t.Error("the peer's refusal is not in the log")
		}
	})
}

func TestWhatIsUsualIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		for range 100 {
			one := exec("a")
			one.Usual = true
			r.Note(one)
		}
		if len(r.told) != 0 || r.lines() != 1 {
			t.Errorf("%d lines, the owner was told %q", r.lines(), r.told)
		}
	})
}

func TestARefusalNowAndThenIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		for range 100 {
			r.Note(exec("a"))
			time.Sleep(10 * time.Second)
		}
		if len(r.told) != 0 {
			t.Errorf("the owner was told %q", r.told)
		}
	})
}
