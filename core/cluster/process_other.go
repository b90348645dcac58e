//go:build !linux

package cluster

import (
	"context"
	"errors"
	"runtime"
)

// errNoEngine is why NewBuiltin refuses.
var errNoEngine = errors.New("the built-in Kubernetes needs Linux, this is " + runtime.GOOS + ": set engine to kubeconfig, and kubeconfig to a cluster in a virtual machine or elsewhere")

// supported tells why the built-in engine cannot run here.
func supported() error { return errNoEngine }

// process is a process that is not our child. There is none here: NewBuiltin refuses.
type process struct{ pid int }

func birth(int) (string, error)                             { return "", errNoEngine }
func openProcess(int, string) (*process, error)             { return nil, errNoEngine }
func (*process) wait(context.Context) bool                  { return true }
func (*process) end(context.Context, context.Context) error { return errNoEngine }
func (*process) close()                                     {}
