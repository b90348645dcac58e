// Package controllerlog takes what controller-runtime and client-go log, and writes it into our own log as we write there.
//
// It must never call an error what is tried again, nor say the same of the same object again and again.
package controllerlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// sayAgain is how often the same is said of the same object.
	sayAgain = time.Minute
	mostSaid = 1024
)

// sink takes it. Their news are for us (Debug); what they call an error is mostly tried again, so it is a Warn, with our keys, and not more than
// once a minute of each object.
type sink struct {
	log    *slog.Logger
	said   *said
	values []any
}

var _ logr.LogSink = sink{}

// To makes controller-runtime and client-go log through log. What was first holds for controller-runtime.
func To(log *slog.Logger) logr.Logger {
	logger := logr.New(sink{log: log, said: &said{last: map[string]*saying{}, now: time.Now}})
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return logger
}

func (l sink) Init(logr.RuntimeInfo) {}
func (l sink) Enabled(int) bool      { return l.log.Enabled(context.Background(), slog.LevelDebug) }

func (l sink) Info(_ int, msg string, values ...any) {
	attrs, _ := ourKeys(append(l.values[:len(l.values):len(l.values)], values...))
	l.log.Debug(msg, attrs...)
}

func (l sink) Error(err error, msg string, values ...any) {
	attrs, about := ourKeys(append(l.values[:len(l.values):len(l.values)], values...))
	attrs = append(attrs, "err", err)
	// Somebody was faster, and it is read again; or kithd ends.
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		l.log.Debug(msg, attrs...)
		return
	}
	unsaid, again := l.said.of(msg + about)
	if !again {
		return
	}
	if unsaid > 0 {
		attrs = append(attrs, "unsaid", unsaid)
	}
	l.log.Warn(msg, attrs...)
}

func (l sink) WithName(string) logr.LogSink { return l }

func (l sink) WithValues(values ...any) logr.LogSink {
	l.values = append(l.values[:len(l.values):len(l.values)], values...)
	return l
}

// ourKeys turns the keys of controller-runtime into ours: the object of a reconciler is named once, as a peer or a pod
// where it is one. about is the same for the same controller and object.
func ourKeys(values []any) (attrs []any, about string) {
	kind, name, namespace := "", "", ""
	for i := 0; i+1 < len(values); i += 2 {
		switch key, value := fmt.Sprint(values[i]), values[i+1]; key {
		case "controllerKind":
			kind = fmt.Sprint(value)
		case "name":
			name = fmt.Sprint(value)
		case "namespace":
			namespace = fmt.Sprint(value)
		case "controllerGroup", "reconcileID", kind:
		case "controller":
			about += fmt.Sprint(" ", value)
			attrs = append(attrs, key, value)
		case "error":
			attrs = append(attrs, "err", value)
		default:
			attrs = append(attrs, key, value)
		}
	}
	if namespace != "" {
		attrs = append(attrs, "namespace", namespace)
	}
	if name != "" {
		key := "object"
		switch kind {
		case "Peer":
			key = "peer"
		case "Pod", "OffloadedPod":
			key = "pod"
		}
		attrs = append(attrs, key, name)
	}
	return attrs, about + " " + namespace + "/" + name
}

// said remembers what was logged lately.
type said struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]*saying
}

type saying struct {
	at     time.Time
	unsaid int // since
}

// of says whether it is time to log what again, and how often it was not logged since the last time.
func (s *said) of(what string) (unsaid int, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	last := s.last[what]
	if last == nil {
		if len(s.last) >= mostSaid {
			clear(s.last)
		}
		s.last[what] = &saying{at: now}
		return 0, true
	}
	if now.Sub(last.at) < sayAgain {
		last.unsaid++
		return 0, false
	}
	unsaid, last.unsaid, last.at = last.unsaid, 0, now
	return unsaid, true
}
