package localapi

import (
	"io"
	"net/http"
	"time"

	"kith.dev/core/api"
)

// sendTime is how long a caller may take for the next part of an archive.
const sendTime = time.Minute

// serveLoad passes an archive on as it comes: it is never whole in memory.
func (s *Server) serveLoad(w http.ResponseWriter, r *http.Request) {
	who := r.Context().Value(callerKey{}).(*caller)
	name := r.URL.Query().Get("name")
	var err error
	if name != "" {
		err = checkName("name", name)
	}
	var loaded []api.Image
	control := http.NewResponseController(w)
	if err == nil {
		loaded, err = s.Backend.LoadImages(r.Context(), &sent{r.Body, control}, name)
	}
	s.Log.Info("local API call", "call", "POST "+r.URL.Path, "uid", who.uid, "pid", who.pid, "images", len(loaded), "err", err)
	control.SetWriteDeadline(time.Now().Add(s.CallTimeout))
	reply(w, loaded, err)
}

// sent gives the caller time for each part.
type sent struct {
	io.Reader
	control *http.ResponseController
}

func (s *sent) Read(b []byte) (int, error) {
	s.control.SetReadDeadline(time.Now().Add(sendTime))
	n, err := s.Reader.Read(b)
	if err != nil {
		s.control.SetReadDeadline(time.Time{}) // while it is unpacked, a read only tells that the caller left
	}
	return n, err
}
