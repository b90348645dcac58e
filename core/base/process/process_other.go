//go:build !linux

package process

import (
	"context"
	"errors"
	"net"
	"time"
)

// Process is a process that is not our child. There is none here: the programs that are kept so need Linux.
type Process struct{ PID int }

func birth(int) (string, error)                            { return "", errors.ErrUnsupported }
func open(int, string) (*Process, error)                   { return nil, errors.ErrUnsupported }
func (*Process) Wait(context.Context) bool                 { return true }
func (*Process) End(context.Context, time.Duration) error  { return errors.ErrUnsupported }
func (*Process) Listener(string) (*net.TCPListener, error) { return nil, errors.ErrUnsupported }
func (*Process) Close()                                    {}
