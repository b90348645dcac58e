package notice

import (
	"bytes"
	"context"
	"html"
	"image"
	"image/draw"
	"image/png"
	"slices"
	"strings"

	"github.com/esiqveland/notify"
	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
)

// send shows a notice, in the place of the one with the same key if that is still there.
func (b *Bus) send(ctx context.Context, n Notice) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime) // what is half shown could not be taken back
	defer cancel()
	b.ask(ctx)
	old := b.id(n.Key)
	body := n.Body
	if b.markup {
		body = html.EscapeString(body)
	}
	actions, timeout := []string{}, int32(notify.ExpireTimeoutSetByNotificationServer.Milliseconds())
	if n.Lasts {
		timeout = int32(notify.ExpireTimeoutNever.Milliseconds())
	}
	if n.About.waits() {
		timeout = int32(notify.ExpireTimeoutNever.Milliseconds()) // it is taken back when it is answered or lapses
	}
	if yes, no := n.About.buttons(); yes != "" {
		if b.actions {
			actions = append(actions, actionYes, yes)
		}
		if b.actions && no != "" {
			actions = append(actions, actionNo, no)
		}
		if !b.actions || b.hides {
			body = lines(body, n.About.elsewhere())
		}
	}
	var id uint32
	err := b.conn.Object(server, serverPath).CallWithContext(ctx, server+".Notify", 0,
		"Kith", old, "", plain(n.Title), body, actions, hints(n), timeout).Store(&id)
	if err != nil || id == 0 {
		b.log.Debug("notification not shown, it waits for a server", "title", n.Title, "err", err)
		b.keep(n)
		return
	}
	delete(b.shown, old)
	b.moved(ctx) // the call may have started the server, and the word of that is still on its way
	b.shown[id] = n
	if delete(b.unseen, n.Key); b.quiet && n.About.waits() {
		b.unseen[n.Key] = true
	}
}

// ask learns what the server can do.
func (b *Bus) ask(ctx context.Context) {
	if b.asked && b.owner != "" {
		return
	}
	var can []string
	if err := b.conn.Object(server, serverPath).CallWithContext(ctx, server+".GetCapabilities", 0).Store(&can); err != nil {
		b.log.Debug("no notification server", "err", err)
		return
	}
	var vendor, version, spec string
	if err := b.conn.Object(server, serverPath).CallWithContext(ctx, server+".GetServerInformation", 0).Store(&b.name, &vendor, &version, &spec); err != nil {
		b.log.Debug("the notification server does not say what it is", "err", err)
	}
	b.moved(ctx)
	b.hides = b.name == "dunst" // a click with the middle button opens a menu of them, if it has a program for that
	b.actions, b.markup, b.asked = slices.Contains(can, "actions"), slices.Contains(can, "body-markup"), true
	b.quiet = b.readQuiet(ctx)
}

// plain makes a title harmless to servers that take titles for markup, and to those that do not.
func plain(title string) string {
	return strings.NewReplacer("<", "‹", ">", "›", "&", "＆").Replace(title)
}

// categories are those of the specification that say what a kind is.
var categories = map[Kind]string{PeerLost: "presence.offline", PeerBack: "presence.online", TetherLost: "network.error"}

// hints says how a notice is to be shown. None is critical, so the desktop's do-not-disturb holds for all; none is transient, so that who was away finds
// them in the desktop's list; none is resident, for a button answers once.
func hints(n Notice) map[string]dbus.Variant {
	urgency := notify.UrgencyNormal
	if n.Low {
		urgency = notify.UrgencyLow
	}
	out := map[string]dbus.Variant{"desktop-entry": dbus.MakeVariant("kith-tray")}
	if c := categories[n.Kind]; c != "" {
		out["category"] = dbus.MakeVariant(c)
	}
	for _, h := range []notify.Hint{notify.HintUrgency(urgency), notify.HintImageDataRGBA(picture(n))} {
		out[h.ID] = h.Variant
	}
	return out
}

// picture is the icon of the notice. The pixels are not premultiplied, whatever the type of esiqveland/notify says.
func picture(n Notice) *image.RGBA {
	source := icon.App()
	if n.Icon != "" {
		source = icon.PNG(n.Icon, 48)
	}
	img, err := png.Decode(bytes.NewReader(source))
	if err != nil {
		panic("an icon is no PNG: " + err.Error())
	}
	flat := image.NewNRGBA(img.Bounds())
	draw.Draw(flat, flat.Bounds(), img, img.Bounds().Min, draw.Src)
	return &image.RGBA{Pix: flat.Pix, Stride: flat.Stride, Rect: flat.Rect}
}
