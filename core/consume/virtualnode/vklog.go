package virtualnode

import (
	"fmt"
	"log/slog"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
)

// vkLogger lets virtual-kubelet write to our log. What it calls Info is Debug to an owner.
type vkLogger struct{ log *slog.Logger }

func (l vkLogger) Debug(...any)          {}
func (l vkLogger) Debugf(string, ...any) {}

func (l vkLogger) Info(a ...any)             { l.log.Debug(fmt.Sprint(a...)) }
func (l vkLogger) Infof(f string, a ...any)  { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l vkLogger) Warn(a ...any)             { l.log.Warn(fmt.Sprint(a...)) }
func (l vkLogger) Warnf(f string, a ...any)  { l.log.Warn(fmt.Sprintf(f, a...)) }
func (l vkLogger) Error(a ...any)            { l.log.Error(fmt.Sprint(a...)) }
func (l vkLogger) Errorf(f string, a ...any) { l.log.Error(fmt.Sprintf(f, a...)) }

// Fatal must not end the process from within a library.
func (l vkLogger) Fatal(a ...any)            { l.log.Error(fmt.Sprint(a...)) }
func (l vkLogger) Fatalf(f string, a ...any) { l.log.Error(fmt.Sprintf(f, a...)) }

func (l vkLogger) WithField(k string, v any) vklog.Logger { return vkLogger{l.log.With(ours(k), v)} }
func (l vkLogger) WithError(err error) vklog.Logger       { return vkLogger{l.log.With("err", err)} }

func (l vkLogger) WithFields(fields vklog.Fields) vklog.Logger {
	log := l.log
	for k, v := range fields {
		log = log.With(ours(k), v)
	}
	return vkLogger{log}
}

// ours are the keys of our log for those of virtual-kubelet.
func ours(key string) string {
	switch key {
	case "name", "podName":
		return "pod"
	case "podNamespace":
		return "namespace"
	}
	return key
}
