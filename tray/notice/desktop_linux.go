package notice

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/godbus/dbus/v5"
)

// Desktop is the Screen of this session. The error says that there is no session bus.
func Desktop(log *slog.Logger) (Screen, error) {
	conn, err := dbus.ConnectSessionBus()
	if err != nil {
		return nil, fmt.Errorf("connect to the session bus: %w", err)
	}
	return desktop{NewBus(conn, log)}, nil
}

// desktop closes the connection that was made for it.
type desktop struct{ *Bus }

func (d desktop) Run(ctx context.Context, clicked func(Answer)) error {
	defer d.conn.Close()
	return d.Bus.Run(ctx, clicked)
}
